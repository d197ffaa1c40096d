//! Values that are kept for long and seldom read, each in one block of memory. Beside what they take themselves, this
//! spares what an allocator cannot give back: a value of many small parts leaves them scattered over all the memory that
//! was in use while it came.

use std::{fmt, marker::PhantomData, sync::Arc};

use serde::{Serialize, de::DeserializeOwned};

/// A value in one block of memory. Copies share it.
pub struct Packed<T> {
    block: Arc<[u8]>,
    of: PhantomData<fn() -> T>,
}

impl<T: Serialize + DeserializeOwned> Packed<T> {
    /// Packs a value. `None`: the value cannot be written as JSON.
    pub fn pack(value: &T) -> Option<Self> {
        let block = lz4_flex::compress_prepend_size(&serde_json::to_vec(value).ok()?).into();
        Some(Self { block, of: PhantomData })
    }

    /// Returns the value. `None`: what it was written as cannot be read.
    pub fn unpack(&self) -> Option<T> {
        serde_json::from_slice(&lz4_flex::decompress_size_prepended(&self.block).ok()?).ok()
    }
}

impl<T> Packed<T> {
    /// True if both were packed from values that are written alike. Values that are written differently may be equal.
    pub fn is_written_as(&self, other: &Self) -> bool {
        self.block == other.block
    }

    /// Size of the block in bytes.
    pub fn size(&self) -> usize {
        self.block.len()
    }
}

impl<T> Clone for Packed<T> {
    fn clone(&self) -> Self {
        Self { block: self.block.clone(), of: PhantomData }
    }
}

impl<T> fmt::Debug for Packed<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Packed({} bytes)", self.size())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_comes_back_and_takes_one_small_block() {
        let value: Vec<String> =
            (0..256).map(|at| format!("/redfish/v1/Chassis/{at}/CXLLogicalDevices/{at}")).collect();
        let packed = Packed::pack(&value).unwrap();
        assert_eq!(packed.unpack().unwrap(), value);
        assert!(packed.size() < 256 * 12, "{packed:?}");
        assert!(packed.clone().is_written_as(&Packed::pack(&value).unwrap()));
        assert!(!packed.is_written_as(&Packed::pack(&value[1..].to_vec()).unwrap()));
    }

    #[test]
    fn what_json_cannot_say_is_not_packed() {
        let value = std::collections::BTreeMap::from([(vec![1], 1)]);
        assert!(Packed::pack(&value).is_none());
    }
}
