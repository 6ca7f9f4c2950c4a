//! Are folders with a copy of a machine read like the machine itself?

use std::fs;
use std::path::{Path, PathBuf};

use homenode_topology::{Topology, TopologyError, machines};

/// A folder of the test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("homenode-topology-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_saved_machine_is_the_same_machine() {
    for (name, text) in machines::ALL {
        let folder = Folder::new(name);
        let machine = Topology::from_bundle(text).unwrap();
        machine.save(&folder.0).unwrap();
        let again = Topology::from_dir(&folder.0).unwrap();
        assert_eq!(again.capture(), machine.capture(), "{name}");
        assert_eq!(again.describe(), machine.describe(), "{name}");
    }
}

#[test]
fn folders_without_a_machine_are_errors() {
    let folder = Folder::new("empty");
    assert!(matches!(Topology::from_dir(&folder.0), Err(TopologyError::Empty { .. })));
    let missing = Topology::from_dir(&folder.0.join("nowhere")).unwrap_err();
    assert!(missing.to_string().contains("nowhere"));
    let file = folder.0.join("file");
    fs::write(&file, "x").unwrap();
    assert!(Topology::from_bundle("sys/x: 1").unwrap().save(&file).is_err());
}

fn write(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// The kernel shows disks as links into the tree of devices, and the node at one of the devices above.
#[test]
#[cfg(unix)]
fn a_disk_is_on_its_controllers_node() {
    use std::os::unix::fs::symlink;
    let folder = Folder::new("disk");
    let root = &folder.0;
    Topology::from_bundle(machines::text("skylake-2s").unwrap()).unwrap().save(root).unwrap();
    fs::remove_dir_all(root.join("sys/block")).unwrap();
    fs::create_dir_all(root.join("sys/block")).unwrap();
    let function = "sys/devices/pci0000:80/0000:80:02.0";
    let disk = format!("{function}/virtio1/block/vda");
    write(root, &format!("{function}/numa_node"), "1\n");
    write(root, &format!("{disk}/size"), "2048\n");
    symlink("../..", root.join(&disk).join("device")).unwrap();
    symlink(Path::new("../..").join(&disk), root.join("sys/block/vda")).unwrap();
    write(root, "sys/devices/virtual/block/loop0/size", "8\n");
    symlink("../devices/virtual/block/loop0", root.join("sys/block/loop0")).unwrap();
    let machine = Topology::from_dir(root).unwrap();
    let devices: Vec<_> = machine.devices().iter().map(|d| (d.name.as_str(), d.node, d.bytes)).collect();
    assert_eq!(devices, [("vda", Some(1), Some(1 << 20))]);
}

/// A directory where a file should be is a note, not the end.
#[test]
fn unreadable_files_are_noted() {
    let folder = Folder::new("unreadable");
    Topology::from_bundle(machines::text("skylake-2s").unwrap()).unwrap().save(&folder.0).unwrap();
    let online = folder.0.join("sys/devices/system/node/online");
    fs::remove_file(&online).unwrap();
    fs::create_dir(&online).unwrap();
    let machine = Topology::from_dir(&folder.0).unwrap();
    assert_eq!(machine.nodes().len(), 2);
    let note = machine.notes()[0].to_string();
    assert!(note.starts_with("sys/devices/system/node/online cannot be read"), "{note}");
}
