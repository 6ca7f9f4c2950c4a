//! Which pages have to move so that every node has its share, and as few as that takes?

use std::collections::BTreeMap;

/// The nodes to spread over, and how much of the memory each is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shares {
    nodes: Vec<(usize, u64)>,
}

impl Shares {
    /// Node and weight of each; `None` without a node of weight above 0.
    pub fn new(nodes: Vec<(usize, u64)>) -> Option<Shares> {
        let nodes: Vec<(usize, u64)> = nodes.into_iter().filter(|(_, weight)| *weight > 0).collect();
        (!nodes.is_empty()).then_some(Shares { nodes })
    }

    /// The nodes, without their weights.
    pub fn nodes(&self) -> Vec<usize> {
        self.nodes.iter().map(|(node, _)| *node).collect()
    }

    /// Whether every node is to have the same.
    pub fn is_even(&self) -> bool {
        self.nodes.windows(2).all(|pair| pair[0].1 == pair[1].1)
    }

    /// Which of the nodes has least, of two counts together: what is left over of the next stretch goes there.
    pub fn least(&self, one: &BTreeMap<usize, u64>, other: &BTreeMap<usize, u64>) -> usize {
        let bytes = |node: &usize| one.get(node).unwrap_or(&0) + other.get(node).unwrap_or(&0);
        // By weight: a node that is to have twice as much has half as much of its share.
        let filled = |(node, weight): &(usize, u64)| u128::from(bytes(node)) * 1000 / u128::from(*weight);
        (0..self.nodes.len()).min_by_key(|index| filled(&self.nodes[*index])).unwrap_or(0)
    }

    /// How many of `units` each node is to get, if it has `held` already; what is left over goes to other nodes each `turn`.
    fn quotas_beside(&self, held: &[usize], units: usize, turn: usize) -> Vec<usize> {
        let all = self.quotas(units + held.iter().sum::<usize>(), turn);
        let quota = |(quota, held): (&usize, &usize)| quota.saturating_sub(*held).min(units);
        let mut quotas: Vec<usize> = all.iter().zip(held).map(quota).collect();
        // Nodes that hold more than their share leave less for the others.
        while quotas.iter().sum::<usize>() > units {
            if let Some(largest) = quotas.iter_mut().max() {
                *largest -= 1;
            }
        }
        quotas
    }

    /// How many of `units` each node is to have; what is left over goes to other nodes each `turn`.
    fn quotas(&self, units: usize, turn: usize) -> Vec<usize> {
        let weights: u64 = self.nodes.iter().map(|(_, weight)| weight).sum();
        let share = |weight: u64| (units as u128 * u128::from(weight) / u128::from(weights)) as usize;
        let mut quotas: Vec<usize> = self.nodes.iter().map(|(_, weight)| share(*weight)).collect();
        let left = units - quotas.iter().sum::<usize>();
        let count = quotas.len();
        // Never more left than nodes: each share lost less than one.
        (0..left).for_each(|i| quotas[(turn + i) % count] += 1);
        quotas
    }

    /// As [`targets`](Shares::targets), group by group of few neighbours: what is small and hot (descriptors, lock tables) is
    /// spread too, not only the whole. Costs more moves than evening out the whole would. `held` is what each of the nodes has
    /// of other units, so that these even out what those could not.
    pub fn targets_in_groups(&self, held: &[usize], on: &[usize], turn: usize) -> Vec<Option<usize>> {
        const UNITS_A_NODE: usize = 8;
        let mut held = held.to_vec();
        let mut all = Vec::with_capacity(on.len());
        for (index, group) in on.chunks(UNITS_A_NODE * self.nodes.len()).enumerate() {
            let targets = self.targets(&held, group, turn + index);
            let after = group.iter().zip(&targets).map(|(node, target)| target.unwrap_or(*node));
            self.hold(&mut held, after);
            all.extend(targets);
        }
        all
    }

    /// Counts units by node; nodes that aren't among these are left out.
    pub fn hold(&self, held: &mut Vec<usize>, on: impl Iterator<Item = usize>) {
        held.resize(self.nodes.len(), 0);
        for node in on {
            if let Some(index) = self.nodes.iter().position(|(known, _)| *known == node) {
                held[index] += 1;
            }
        }
    }

    /// How many units of `unit` bytes each of the nodes has, of two counts in bytes together.
    pub fn held(&self, one: &BTreeMap<usize, u64>, other: &BTreeMap<usize, u64>, unit: u64) -> Vec<usize> {
        let bytes = |node: &usize| one.get(node).unwrap_or(&0) + other.get(node).unwrap_or(&0);
        self.nodes.iter().map(|(node, _)| (bytes(node) / unit) as usize).collect()
    }

    /// For each unit, on the node given, where it has to go; `None` if it stays. Units that move are spread evenly over
    /// those of their node, and their targets take turns: neighbours end on different nodes.
    ///
    /// `held` is what each of the nodes has of other units: the whole becomes even, as far as these can make it so.
    pub fn targets(&self, held: &[usize], on: &[usize], turn: usize) -> Vec<Option<usize>> {
        let mut held = held.to_vec();
        held.resize(self.nodes.len(), 0);
        let mut missing = self.quotas_beside(&held, on.len(), turn);
        let mut surplus: Vec<(usize, usize, usize)> = Vec::new();
        for node in on {
            match surplus.iter_mut().find(|(known, ..)| known == node) {
                Some((_, have, _)) => *have += 1,
                None => surplus.push((*node, 1, 0)),
            }
        }
        for (node, have, move_count) in &mut surplus {
            let index = self.nodes.iter().position(|(known, _)| known == node);
            let quota = index.map_or(0, |index| missing[index]);
            *move_count = have.saturating_sub(quota);
            if let Some(index) = index {
                missing[index] = quota.saturating_sub(*have);
            }
        }
        let mut errors = vec![0usize; surplus.len()];
        let mut next = turn;
        let mut target = |node: usize| {
            let index = surplus.iter().position(|(known, ..)| *known == node)?;
            let (_, have, move_count) = surplus[index];
            errors[index] += move_count;
            if errors[index] < have {
                return None;
            }
            errors[index] -= have;
            let count = missing.len();
            let to = (0..count).map(|i| (next + i) % count).find(|i| missing[*i] > 0)?;
            missing[to] -= 1;
            next = to + 1;
            Some(self.nodes[to].0)
        };
        on.iter().map(|node| target(*node)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn even(nodes: &[usize]) -> Shares {
        Shares::new(nodes.iter().map(|node| (*node, 1)).collect()).unwrap()
    }

    fn after(on: &[usize], targets: &[Option<usize>]) -> Vec<usize> {
        on.iter().zip(targets).map(|(node, target)| target.unwrap_or(*node)).collect()
    }

    #[test]
    fn all_on_one_node_becomes_a_quarter_on_each_of_four() {
        let on = vec![2; 400];
        let targets = even(&[0, 1, 2, 3]).targets(&[], &on, 0);
        let after = after(&on, &targets);
        (0..4).for_each(|node| assert_eq!(after.iter().filter(|n| **n == node).count(), 100));
        assert_eq!(targets.iter().flatten().count(), 300);
        // Neighbours are on different nodes, for the most part.
        assert!(after.windows(2).filter(|pair| pair[0] == pair[1]).count() < 40);
    }

    #[test]
    fn what_is_placed_already_counts() {
        let shares = even(&[0, 1]);
        let targets = shares.targets(&[3, 1], &[0, 0, 0, 0], 0);
        assert_eq!(after(&[0, 0, 0, 0], &targets).iter().filter(|node| **node == 1).count(), 3);
        // More than its share: all the rest goes elsewhere.
        assert_eq!(after(&[0, 0], &shares.targets(&[9, 0], &[0, 0], 0)), [1, 1]);
    }

    #[test]
    fn weights_are_followed_and_nodes_not_named_are_emptied() {
        let shares = Shares::new(vec![(0, 3), (1, 1)]).unwrap();
        let on = vec![5; 8];
        let after = after(&on, &shares.targets(&[], &on, 0));
        assert_eq!(after.iter().filter(|node| **node == 0).count(), 6);
        assert!(!shares.is_even());
        assert!(Shares::new(vec![(0, 0)]).is_none());
    }

    proptest! {
        #[test]
        fn every_node_gets_its_quota_by_the_fewest_moves(on in proptest::collection::vec(0usize..5, 0..300), turn in 0usize..9) {
            let shares = even(&[0, 1, 2]);
            let quotas = shares.quotas(on.len(), turn);
            let targets = shares.targets(&[], &on, turn);
            let after = after(&on, &targets);
            let count = |nodes: &[usize], node: usize| nodes.iter().filter(|n| **n == node).count();
            let mut fewest = count(&on, 3) + count(&on, 4);
            for (node, quota) in quotas.iter().enumerate() {
                prop_assert_eq!(count(&after, node), *quota);
                fewest += count(&on, node).saturating_sub(*quota);
            }
            prop_assert_eq!(targets.iter().flatten().count(), fewest);
            prop_assert!(targets.iter().zip(&on).all(|(target, node)| *target != Some(*node)));
        }
    }
}
