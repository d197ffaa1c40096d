//! Answers of the last look at a tree, for a look after devices went: what those did not touch is not read again.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    ffi::OsStr,
    hash::BuildHasher,
    mem,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use hashbrown::{DefaultHashBuilder, HashTable};

/// CPUs, memory blocks and NUMA nodes: each says something of the others, so one that goes touches all.
const SYSTEM: &str = "sys/devices/system";
/// Folders with a link for each device of a kind. They change with every device.
const BUSES: [&str; 2] = ["sys/bus", "sys/class"];
/// Components of the path of a folder of links, at most: `sys/bus/pci/devices`.
const BUS_DEPTH: usize = 4;

/// Memory of the last look at a tree.
#[derive(Debug, Default)]
pub struct LookMemory(Mutex<Answers>);

impl LookMemory {
    /// The answers, for one look; they are given back when it has ended well.
    pub(super) fn take(&self) -> Answers {
        mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    pub(super) fn put(&self, mut answers: Answers) {
        answers.shrink();
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = answers;
    }
}

/// A kind of question, and how its answer is kept as text.
pub(super) struct Question<T> {
    name: u8,
    pack: fn(&T) -> Option<Cow<'_, [u8]>>,
    unpack: fn(Option<&[u8]>) -> T,
}

pub(super) const ATTRIBUTE: Question<Option<String>> = Question {
    name: b'a',
    pack: |text| text.as_deref().map(|text| text.as_bytes().into()),
    unpack: |text| text.map(|text| String::from_utf8_lossy(text).into_owned()),
};

pub(super) const LINK: Question<Option<PathBuf>> = Question {
    name: b'l',
    pack: |target| target.as_deref().map(|target| target.as_os_str().as_bytes().into()),
    unpack: |target| target.map(|target| OsStr::from_bytes(target).into()),
};

pub(super) const NAMES: Question<Vec<String>> = Question {
    name: b'n',
    pack: |names| (!names.is_empty()).then(|| names.join("/").into_bytes().into()),
    unpack: |names| {
        names.map(|names| String::from_utf8_lossy(names).split('/').map(str::to_owned).collect()).unwrap_or_default()
    },
};

pub(super) const EXISTS: Question<bool> =
    Question { name: b'e', pack: |exists| exists.then_some(Cow::Borrowed(b"")), unpack: |exists| exists.is_some() };

/// The serial number in the configuration space that the path names.
pub(super) const SERIAL: Question<Option<u64>> = Question {
    name: b's',
    pack: |serial| serial.map(|serial| serial.to_ne_bytes().to_vec().into()),
    unpack: |serial| serial?.try_into().ok().map(u64::from_ne_bytes),
};

/// Answers to the questions that a look asks most, by question and path. A failure is none.
///
/// All texts are in one piece: a scan asks thousands of questions, on threads that share the heap.
#[derive(Debug, Default)]
pub(super) struct Answers {
    texts: Vec<u8>,
    entries: HashTable<Entry>,
    hasher: DefaultHashBuilder,
    /// True for the answers of an earlier look: little is read besides.
    pub(super) are_recalled: bool,
}

#[derive(Debug)]
struct Entry {
    question: u8,
    path: TextPlace,
    answer: Option<TextPlace>,
}

#[derive(Clone, Copy, Debug)]
struct TextPlace {
    at: u32,
    length: u32,
}

impl TextPlace {
    fn of(self, texts: &[u8]) -> &[u8] {
        let at = self.at as usize;
        texts.get(at..at + self.length as usize).unwrap_or_default()
    }
}

impl Answers {
    /// The answer about a path, if there is one.
    pub(super) fn get<T>(&self, question: &Question<T>, path: &Path) -> Option<T> {
        let path = path.as_os_str().as_bytes();
        let hash = self.hasher.hash_one((question.name, path));
        let is_it = |entry: &Entry| entry.question == question.name && entry.path.of(&self.texts) == path;
        let entry = self.entries.find(hash, is_it)?;
        Some((question.unpack)(entry.answer.map(|place| place.of(&self.texts))))
    }

    /// Keeps an answer that there is none of.
    pub(super) fn keep<T>(&mut self, question: &Question<T>, path: &Path, answer: &T) {
        let Some(path) = self.put(path.as_os_str().as_bytes()) else { return };
        let answer = match (question.pack)(answer) {
            Some(answer) => match self.put(&answer) {
                Some(place) => Some(place),
                None => return,
            },
            None => None,
        };
        let Self { texts, entries, hasher, .. } = self;
        let hash = |entry: &Entry| hasher.hash_one((entry.question, entry.path.of(texts)));
        let entry = Entry { question: question.name, path, answer };
        entries.insert_unique(hash(&entry), entry, hash);
    }

    /// `None` where so much is kept that it cannot be found again.
    fn put(&mut self, text: &[u8]) -> Option<TextPlace> {
        let place = TextPlace { at: self.texts.len().try_into().ok()?, length: text.len().try_into().ok()? };
        self.texts.extend_from_slice(text);
        Some(place)
    }

    /// Forgets what devices that went can have touched.
    pub(super) fn forget(&mut self, removed: &BTreeSet<String>) {
        let removed = RemovedDevices::of(removed);
        self.are_recalled = true;
        let Self { texts, entries, .. } = self;
        entries.retain(|entry| {
            let path = Path::new(OsStr::from_bytes(entry.path.of(texts)));
            !(removed.touch(path) || entry.question == NAMES.name && is_bus(path))
        });
    }

    /// Gives back what was kept free for more.
    fn shrink(&mut self) {
        self.texts.shrink_to_fit();
    }
}

/// Devices that went.
struct RemovedDevices<'a> {
    /// Their names, by which every way to them leads: that of the bus, of the class and of their own folder.
    names: BTreeSet<&'a str>,
    /// The names of the folders around them, each of which may have gone with its last device.
    around: BTreeSet<&'a str>,
    /// True if one is a CPU, a block of memory or a NUMA node.
    has_system: bool,
}

impl<'a> RemovedDevices<'a> {
    fn of(devpaths: &'a BTreeSet<String>) -> Self {
        let names = devpaths.iter().filter_map(|path| path.rsplit('/').next()).collect();
        let around = devpaths.iter().flat_map(|path| path.split('/')).collect();
        let has_system = devpaths.iter().any(|path| path.starts_with("/devices/system/"));
        Self { names, around, has_system }
    }

    fn touch(&self, path: &Path) -> bool {
        let mut parts =
            path.as_os_str().as_bytes().split(|byte| *byte == b'/').filter_map(|part| str::from_utf8(part).ok());
        parts.clone().any(|part| self.names.contains(part))
            || parts.next_back().is_some_and(|name| self.around.contains(name))
            || self.has_system && path.starts_with(SYSTEM)
    }
}

fn is_bus(path: &Path) -> bool {
    BUSES.iter().any(|bus| path.starts_with(bus)) && path.components().count() <= BUS_DEPTH
}

#[cfg(test)]
mod tests {
    use std::{fs, io, sync::Arc};

    use super::{super::*, *};

    /// Notes what is read.
    #[derive(Debug, Default)]
    struct Reads(Mutex<Vec<String>>);

    impl SysRootTap for Reads {
        fn access(&self, _: PathAccess, path: &Path) -> io::Result<()> {
            self.0.lock().unwrap().push(path.display().to_string());
            Ok(())
        }
    }

    const BUS: &str = "sys/bus/pci/devices";

    /// Two cards, each with a region, behind a bridge, and a CPU.
    fn tree() -> (tempfile::TempDir, SysRoot, Arc<Reads>) {
        let folder = tempfile::tempdir().unwrap();
        let reads = Arc::new(Reads::default());
        let root = SysRoot::new(folder.path()).tapped(reads.clone());
        fs::create_dir_all(root.path(BUS)).unwrap();
        for card in ["b1", "b2"] {
            let folder = format!("sys/devices/b0/{card}");
            fs::create_dir_all(root.path(&folder).join("fpga_region/region0")).unwrap();
            fs::write(root.path(&folder).join("vendor"), card).unwrap();
            std::os::unix::fs::symlink(format!("/{folder}"), root.path(BUS).join(card)).unwrap();
        }
        fs::create_dir_all(root.path("sys/devices/system/cpu/cpu0")).unwrap();
        fs::write(root.path("sys/devices/system/cpu/online"), "0").unwrap();
        (folder, root, reads)
    }

    /// Cards with their vendors and their regions, and the CPUs.
    fn look(tree: &TreeReading<'_>) -> Vec<(String, Option<String>, Vec<String>)> {
        let cpus = ("cpus".to_owned(), tree.attribute("sys/devices/system/cpu/online"), Vec::new());
        let card = |name: String| {
            let folder = Path::new(BUS).join(&name);
            let regions = tree.names(folder.join("fpga_region"));
            (name, tree.attribute(folder.join("vendor")), regions)
        };
        tree.names(BUS).into_iter().map(card).chain([cpus]).collect()
    }

    fn removed(devpaths: &[&str]) -> BTreeSet<String> {
        devpaths.iter().map(|path| (*path).to_owned()).collect()
    }

    /// What a look after the removal of `devpaths` reads, where the tree has become another meanwhile.
    fn read_after(devpaths: &[&str]) -> Vec<String> {
        let (_folder, root, reads) = tree();
        let memory = LookMemory::default();
        root.look_remembering(&memory, look).unwrap();
        reads.0.lock().unwrap().clear();
        root.look_after_removal(&memory, &removed(devpaths), look).unwrap();
        let mut reads = std::mem::take(&mut *reads.0.lock().unwrap());
        reads.sort_unstable();
        reads
    }

    #[test]
    fn what_a_removed_device_touches_is_read_again_and_nothing_else() {
        let listing = BUS.to_owned();
        assert_eq!(read_after(&["/devices/storm"]), std::slice::from_ref(&listing));
        let of_card = ["sys/bus/pci/devices/b1/fpga_region", "sys/bus/pci/devices/b1/vendor"];
        assert_eq!(read_after(&["/devices/b0/b1"]), [&listing, of_card[0], of_card[1]]);
        // Which card has the region is not asked: both lists are short.
        let regions = [of_card[0], "sys/bus/pci/devices/b2/fpga_region"];
        assert_eq!(read_after(&["/devices/b0/b1/fpga_region/region0"]), [&listing, regions[0], regions[1]]);
        assert_eq!(read_after(&["/devices/system/cpu/cpu0"]), [&listing, "sys/devices/system/cpu/online"]);
    }

    #[test]
    fn a_device_that_went_is_gone_and_others_are_as_they_were() {
        let (_folder, root, _) = tree();
        let memory = LookMemory::default();
        let before = root.look_remembering(&memory, look).unwrap().0;
        fs::remove_file(root.path(BUS).join("b1")).unwrap();
        fs::write(root.path("sys/devices/b0/b2/vendor"), "changed").unwrap();
        let gone = removed(&["/devices/b0/b1"]);
        assert_eq!(root.look_after_removal(&memory, &gone, look).unwrap().0, before[1..]);
        // Again, from what that look remembered; then the whole.
        assert_eq!(root.look_after_removal(&memory, &gone, look).unwrap().0, before[1..]);
        let whole = root.look_remembering(&memory, look).unwrap().0;
        assert_eq!(whole[0].1.as_deref(), Some("changed"));
    }

    #[test]
    fn after_a_look_that_failed_everything_is_read_again() {
        let (_folder, root, reads) = tree();
        let memory = LookMemory::default();
        root.look_remembering(&memory, look).unwrap();
        let gone = removed(&["/devices/b0/b1"]);
        fs::remove_file(root.path(BUS).join("b1")).unwrap();
        fs::create_dir(root.path("sys/devices/b0/b2/broken")).unwrap();
        let broken = |tree: &TreeReading<'_>| tree.attribute("sys/devices/b0/b2/broken");
        root.look_after_removal(&memory, &gone, broken).unwrap_err();
        reads.0.lock().unwrap().clear();
        root.look_after_removal(&memory, &gone, look).unwrap();
        assert_eq!(reads.0.lock().unwrap().len(), 4);
    }
}
