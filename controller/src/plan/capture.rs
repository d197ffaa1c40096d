//! Reads the objects that a captured node would have in a cluster.
//!
//! A capture is a compressed archive of a machine. Beside the machine's files it holds a Node and the ResourceSlices of
//! its devices, which the daemon has made. So this module needs no knowledge of hardware.

use std::{
    io::{self, BufReader, Read},
    path::{Path, PathBuf},
    str::FromStr,
};

use hostler_api::NodeName;
use hostler_files::{FileError, open_file, read_stream};
use ruzstd::decoding::StreamingDecoder;
use serde_json::Value;

use super::read::InputText;

/// Name of the file with the objects, in the archive.
const OBJECTS: &str = "hostler-objects.json";

/// The most bytes that an archive may unpack to; the limit is the same for programs that read the machine in it.
const MOST_BYTES: u64 = 1 << 30;

/// The most bytes of objects: a node with a thousand devices has a megabyte of slices.
const MOST_OBJECT_BYTES: u64 = 64 << 20;

/// The option `--node-capture`: a file, and the name of its node.
#[derive(Clone, Debug)]
pub(crate) struct NodeCapture {
    file: PathBuf,
    node: String,
}

/// The reason why a capture gives no node.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeCaptureError {
    /// The file cannot be opened.
    #[error("it cannot be read")]
    Open(#[source] io::Error),
    /// The file is no archive, or a damaged one.
    #[error("it is not a capture")]
    Archive(#[source] io::Error),
    /// The capture was made before captures had objects.
    #[error(
        "there is no {OBJECTS} in it: an earlier version of hostler made it; run `hostler capture --root {} -o NEW.tar.zst` \
         and name the new file",
        file.display()
    )]
    NoObjects {
        /// The capture.
        file: PathBuf,
    },
    /// The objects in it are not what a daemon writes there.
    #[error("{OBJECTS} in it is not valid")]
    Objects(#[source] serde_json::Error),
}

impl FromStr for NodeCapture {
    type Err = String;

    /// Parses `NODE=FILE`, or `FILE`; the node of the second form has the name of the file.
    fn from_str(text: &str) -> Result<Self, String> {
        let named = text.split_once('=').filter(|(node, _)| NodeName::new(*node).is_ok());
        if let Some((node, file)) = named {
            return Ok(Self { file: file.into(), node: node.to_owned() });
        }
        let file = PathBuf::from(text);
        let name = file.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_lowercase();
        let name = name.strip_suffix(".tar.zst").unwrap_or(&name).to_owned();
        match NodeName::new(name.clone()) {
            Ok(_) => Ok(Self { file, node: name }),
            Err(error) => Err(format!("the file's name is no name of a node ({error}); write NODE=FILE")),
        }
    }
}

impl NodeCapture {
    /// Returns the capture's name in messages.
    pub(crate) fn source(&self) -> String {
        self.file.display().to_string()
    }

    /// Reads the node and its slices, with the node's name.
    ///
    /// # Errors
    /// When the file cannot be read, or holds no node.
    pub(crate) fn read(&self) -> Result<InputText, NodeCaptureError> {
        let text = objects(&self.file)?.ok_or_else(|| NodeCaptureError::NoObjects { file: self.file.clone() })?;
        let mut list: Value = serde_json::from_slice(&text).map_err(NodeCaptureError::Objects)?;
        rename(&mut list, &self.node);
        Ok(InputText { name: self.source(), text: list.to_string() })
    }
}

fn objects(path: &Path) -> Result<Option<Vec<u8>>, NodeCaptureError> {
    let (file, _) = open_file(path).map_err(|FileError { source, .. }| NodeCaptureError::Open(source))?;
    let decoder = StreamingDecoder::new(BufReader::new(file));
    let decoder = decoder.map_err(|error| NodeCaptureError::Archive(io::Error::other(error)))?;
    find(tar::Archive::new(decoder.take(MOST_BYTES))).map_err(NodeCaptureError::Archive)
}

fn find(mut archive: tar::Archive<impl Read>) -> io::Result<Option<Vec<u8>>> {
    for entry in archive.entries()? {
        let entry = entry?;
        if *entry.path()? == *Path::new(OBJECTS) {
            return read_stream(entry, MOST_OBJECT_BYTES).map(Some);
        }
    }
    Ok(None)
}

/// Renames the node in all objects; captures do not know its name, or were told to leave it out.
fn rename(list: &mut Value, node: &str) {
    let Some(items) = list["items"].as_array_mut() else { return };
    let is_node = |item: &&Value| item["kind"] == "Node";
    let old =
        items.iter().find(is_node).and_then(|item| item["metadata"]["name"].as_str()).unwrap_or_default().to_owned();
    for item in items {
        if item["kind"] == "Node" {
            item["metadata"]["name"] = node.into();
            item["metadata"]["labels"]["kubernetes.io/hostname"] = node.into();
            continue;
        }
        // Two captures of one kind of machine have slices of the same names; the order within a pool stays.
        let name = item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        item["metadata"]["name"] = format!("{name}-{node}").into();
        item["spec"]["nodeName"] = node.into();
        let pool = item["spec"]["pool"]["name"].as_str().unwrap_or_default().to_owned();
        let rest = pool.strip_prefix(&*old).unwrap_or(&pool).to_owned();
        item["spec"]["pool"]["name"] = format!("{node}{rest}").into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_called_as_it_is_told_or_as_its_file() {
        let name = |text: &str| text.parse::<NodeCapture>().map(|capture| (capture.node.clone(), capture.source()));
        assert_eq!(name("/a/Worker-7.tar.zst"), Ok(("worker-7".to_owned(), "/a/Worker-7.tar.zst".to_owned())));
        assert_eq!(name("n1=/a/b_c"), Ok(("n1".to_owned(), "/a/b_c".to_owned())));
        assert!(name("/a/b_c").unwrap_err().ends_with("; write NODE=FILE"));
    }

    #[test]
    fn the_name_is_replaced_in_node_slices_and_pools() {
        let mut list = serde_json::json!({"items": [
            {"kind": "Node", "metadata": {"name": "captured"}},
            {"kind": "ResourceSlice", "metadata": {"name": "0-x"}, "spec": {"nodeName": "captured", "pool": {"name": "captured/cpu"}}},
        ]});
        rename(&mut list, "n1");
        assert_eq!(list["items"][0]["metadata"]["name"], "n1");
        let slice = &list["items"][1];
        assert_eq!((&slice["metadata"]["name"], &slice["spec"]["nodeName"]), (&"0-x-n1".into(), &"n1".into()));
        assert_eq!(slice["spec"]["pool"]["name"], "n1/cpu");
    }
}
