//! Lists of different lengths in one allocation, because the search creates and drops thousands of them.

use std::ops::{Index, IndexMut};

/// Lists of `T`; list `i` is `lists[i]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lists<T> {
    ends: Vec<u32>,
    items: Vec<T>,
}

impl<T> Default for Lists<T> {
    fn default() -> Self {
        Lists {
            ends: Vec::new(),
            items: Vec::new(),
        }
    }
}

impl<T> Lists<T> {
    /// Create an empty collection with capacity.
    pub fn with_capacity(lists: usize, items: usize) -> Self {
        Lists {
            ends: Vec::with_capacity(lists),
            items: Vec::with_capacity(items),
        }
    }

    /// Count the lists.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Tell whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Add a list.
    pub fn push(&mut self, items: impl IntoIterator<Item = T>) {
        self.items.extend(items);
        self.ends.push(self.items.len() as u32);
    }

    /// Iterate over the lists in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &[T]> + Clone + '_ {
        (0..self.len()).map(|i| &self[i])
    }

    /// Return all items, one list after the other.
    pub fn items(&self) -> &[T] {
        &self.items
    }

    /// Return all items, mutably.
    pub fn items_mut(&mut self) -> &mut [T] {
        &mut self.items
    }

    /// Create lists of the same lengths, filled with one value.
    pub fn filled<U: Clone>(&self, value: U) -> Lists<U> {
        Lists {
            ends: self.ends.clone(),
            items: vec![value; self.items.len()],
        }
    }

    fn range(&self, i: usize) -> std::ops::Range<usize> {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        start..self.ends[i] as usize
    }
}

impl<T> Index<usize> for Lists<T> {
    type Output = [T];

    fn index(&self, i: usize) -> &[T] {
        &self.items[self.range(i)]
    }
}

impl<T> IndexMut<usize> for Lists<T> {
    fn index_mut(&mut self, i: usize) -> &mut [T] {
        let range = self.range(i);
        &mut self.items[range]
    }
}

impl<T, L: IntoIterator<Item = T>> FromIterator<L> for Lists<T> {
    fn from_iter<I: IntoIterator<Item = L>>(lists: I) -> Self {
        let mut made = Lists::default();
        for list in lists {
            made.push(list);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::Lists;

    #[test]
    fn keeps_lists_apart() {
        let mut lists: Lists<i32> = [vec![1, 2], vec![], vec![3]].into_iter().collect();
        assert_eq!(
            (&lists[0], lists[1].len(), &lists[2]),
            (&[1, 2][..], 0, &[3][..])
        );
        lists[2][0] = 4;
        assert_eq!(lists.items(), [1, 2, 4]);
        assert_eq!(
            lists.filled(0).iter().map(<[i32]>::len).collect::<Vec<_>>(),
            [2, 0, 1]
        );
    }
}
