//! Which device is a folder on, and which CPUs are near it? Where the system says so.

use crate::{BlockDevice, Topology};
use std::path::Path;

/// The block device that a folder is on: its name, and the node that it hangs at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The disk's name, or a partition's whose disk is not known.
    pub name: Option<String>,
    /// The node of its controller.
    pub node: Option<usize>,
}

impl Device {
    /// Asks the system.
    pub fn of(folder: &Path, topology: &Topology) -> Device {
        use std::os::unix::fs::MetadataExt;
        let Ok(folder) = std::fs::metadata(folder) else { return Device::default() };
        // Linux splits a device number into 12 bits and 20 (include/linux/kdev_t.h; glibc's makedev).
        let number = folder.dev();
        let major = (number >> 8 & 0xfff) | (number >> 32 & !0xfff);
        let minor = (number & 0xff) | (number >> 12 & !0xff);
        match std::fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")) {
            Ok(path) => Device::at(&path, topology.devices()),
            Err(_) => Device::default(),
        }
    }

    /// By its place in the system's tree of devices: a partition's folder lies in its disk's.
    fn at(path: &Path, disks: &[BlockDevice]) -> Device {
        let names: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
        let disk = disks.iter().find(|disk| names.contains(&disk.name.as_str()));
        let name = disk.map(|disk| disk.name.as_str()).or(names.last().copied());
        Device { name: name.map(str::to_owned), node: disk.and_then(|disk| disk.node) }
    }

    /// The CPUs of its node that this process may use; nothing where the node is not known or there is only one.
    pub fn near_cpus(&self, topology: &Topology) -> Option<Vec<usize>> {
        let node = topology.node(self.node?).filter(|_| topology.nodes().len() > 1)?;
        let allowed = topology.allowed_cpus();
        let cpus: Vec<usize> = node.cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
        (!cpus.is_empty()).then_some(cpus)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machines;

    #[test]
    fn readers_live_at_the_disks_node() {
        let (mut told, mut untold) = (0, 0);
        for (name, text) in machines::ALL {
            let machine = Topology::from_bundle(text).unwrap();
            for disk in machine.devices() {
                let path = format!("/sys/devices/pci0000:00/nvme/{0}/{0}p1", disk.name);
                let device = Device::at(Path::new(&path), machine.devices());
                assert_eq!(device, Device { name: Some(disk.name.clone()), node: disk.node }, "{name}");
                match (device.near_cpus(&machine), disk.node.filter(|_| machine.nodes().len() > 1)) {
                    (Some(cpus), Some(node)) => {
                        assert_eq!(cpus, machine.node(node).unwrap().cpus, "{name}");
                        told += 1;
                    }
                    (None, None) => untold += 1,
                    other => panic!("{name}: {other:?}"),
                }
                assert_eq!(device.near_cpus(&machine.as_one_node()), None);
            }
        }
        assert!(told > 0 && untold > 0, "{told} {untold}");
        let unknown = Device::at(Path::new("/sys/devices/virtual/block/zram0"), &[]);
        assert_eq!(unknown, Device { name: Some("zram0".into()), node: None });
    }
}
