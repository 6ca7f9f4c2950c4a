//! Which machines can be looked at without owning them? Text copies of well-known shapes, for tests, for the simulator and
//! for trying what a command would do elsewhere. Each says at its head what it was written from.

/// Name and text ([`Topology::from_bundle`](crate::Topology::from_bundle)) of each machine, small to large.
pub const ALL: &[(&str, &str)] = &[
    ("laptop-8", include_str!("../machines/laptop-8.txt")),
    ("skylake-2s", include_str!("../machines/skylake-2s.txt")),
    ("sapphire-rapids-2s-cxl", include_str!("../machines/sapphire-rapids-2s-cxl.txt")),
    ("kunpeng-920", include_str!("../machines/kunpeng-920.txt")),
    ("genoa-2s-nps4", include_str!("../machines/genoa-2s-nps4.txt")),
];

/// The text of one machine by its name.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}
