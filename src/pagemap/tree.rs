//! The tree's nodes and the ways down: regions of 32 GiB, pages of 2 MiB, groups of 32 KiB, places of 512 bytes.

use crate::sync::AtomicU64;
use once_cell::race::OnceBox;

#[cfg(not(loom))]
mod size {
    pub(super) const REGIONS: usize = 1 << 13;
    pub(super) const PAGES: usize = 1 << 14;
    pub(super) const GROUPS: usize = 1 << 6;
    pub(super) const PLACES: usize = 1 << 6;
    pub(super) const FEW: usize = 8;
}
/// Few cells, because loom tracks each; its models use addresses that do not meet.
#[cfg(loom)]
mod size {
    pub(super) const REGIONS: usize = 1;
    pub(super) const PAGES: usize = 1;
    pub(super) const GROUPS: usize = 1;
    pub(super) const PLACES: usize = 8;
    pub(super) const FEW: usize = 1;
}
use size::{FEW, GROUPS, PAGES, PLACES, REGIONS};

/// 64 KiB, from the first insertion on. The tree's arrays are boxed as they are, so that they never pass over the stack.
pub(super) type Root = [OnceBox<Region>; REGIONS];

/// 256 KiB for every 32 GiB of address space in use.
pub(super) type Region = [Page; PAGES];

/// A page and, where its blocks crowd, its groups: 1 KiB.
pub(super) type Page = Node<[Group; GROUPS]>;

/// A group and, where its blocks crowd, its places: 512 bytes.
pub(super) type Group = Node<[AtomicU64; PLACES]>;

/// A stretch of addresses with room for one block, and for more once there are more.
pub(super) struct Node<Kids> {
    pub(super) own: AtomicU64,
    more: OnceBox<More<Kids>>,
}

/// Room for a few blocks, each address in the one cell that [`fold`] gives it, and then a place for each address.
struct More<Kids> {
    few: [AtomicU64; FEW],
    kids: OnceBox<Kids>,
}

impl<Kids> Default for Node<Kids> {
    fn default() -> Self {
        Self { own: AtomicU64::default(), more: OnceBox::new() }
    }
}

impl<Kids> More<Kids> {
    fn boxed() -> Box<Self> {
        Box::new(Self { few: std::array::from_fn(|_| AtomicU64::default()), kids: OnceBox::new() })
    }
}

/// Which of `n` (a power of two) children an address belongs to, counted in units of 2^`shift` bytes.
#[inline]
#[allow(clippy::cast_possible_truncation)] // masked below 2^14
fn child(address: u64, shift: u32, n: usize) -> usize {
    (address >> shift) as usize & (n - 1)
}

/// Which of a node's few cells an address may be in: no two of up to eight blocks that lie a power of two apart, as blocks of one
/// size do, meet in one.
#[inline]
fn fold(address: u64) -> usize {
    let step = address >> 9;
    child(step ^ step >> 3 ^ step >> 6 ^ step >> 9, 0, FEW)
}

/// A node's default cells, built on the heap.
pub(super) fn filled<T: Default, const N: usize>() -> Box<[T; N]> {
    let all: Box<[T]> = (0..N).map(|_| T::default()).collect();
    all.try_into().unwrap_or_else(|_| unreachable!("N were collected"))
}

/// The page of an address, if its region exists.
#[inline]
pub(super) fn page(root: &Root, address: u64) -> Option<&Page> {
    Some(&root[child(address, 35, REGIONS)].get()?[child(address, 21, PAGES)])
}

/// The page of an address.
#[inline]
pub(super) fn page_or_new(root: &Root, address: u64) -> &Page {
    &root[child(address, 35, REGIONS)].get_or_init(filled)[child(address, 21, PAGES)]
}

/// Asks every cell there is that could hold an address, until one answers, and tells whether no other address can use the cell.
/// What a cell holds stays there, so the order is free: the one that large blocks are in, the one that crowds are in, the rest.
#[inline]
pub(super) fn find<'a, R>(
    page: &'a Page,
    address: u64,
    mut ask: impl FnMut(&'a AtomicU64, bool) -> Option<R>,
) -> Option<R> {
    if let found @ Some(_) = ask(&page.own, false) {
        return found;
    }
    let more = page.more.get()?;
    if let Some(groups) = more.kids.get() {
        let group = &groups[child(address, 15, GROUPS)];
        let more = group.more.get();
        if let Some(places) = more.and_then(|more| more.kids.get())
            && let found @ Some(_) = ask(&places[child(address, 9, PLACES)], true)
        {
            return found;
        }
        if let found @ Some(_) = ask(&group.own, false) {
            return found;
        }
        if let Some(more) = more
            && let found @ Some(_) = ask(&more.few[fold(address)], false)
        {
            return found;
        }
    }
    ask(&more.few[fold(address)], false)
}

/// Offers an address the cells it may be put in, on the way down, until one is `claimed`; makes nodes as needed. What is left, if
/// not even that is free, is the address's own place.
#[inline]
pub(super) fn offer(page: &Page, address: u64, mut claimed: impl FnMut(&AtomicU64) -> bool) -> Option<&AtomicU64> {
    let groups = offer_node(page, address, filled, &mut claimed)?;
    let places = offer_node(&groups[child(address, 15, GROUPS)], address, filled, &mut claimed)?;
    Some(&places[child(address, 9, PLACES)])
}

fn offer_node<'a, Kids>(
    node: &'a Node<Kids>,
    address: u64,
    new: impl FnOnce() -> Box<Kids>,
    claimed: &mut impl FnMut(&AtomicU64) -> bool,
) -> Option<&'a Kids> {
    if claimed(&node.own) {
        return None;
    }
    let more = node.more.get_or_init(More::boxed);
    if claimed(&more.few[fold(address)]) {
        return None;
    }
    Some(more.kids.get_or_init(new))
}

/// Calls `each` with every cell and the address of its page.
pub(super) fn walk(root: &Root, mut each: impl FnMut(u64, &AtomicU64)) {
    for (high, region) in (0u64..).zip(root) {
        for (low, page) in (0u64..).zip(region.get().into_iter().flatten()) {
            let mut each = |cell: &AtomicU64| each(high << 35 | low << 21, cell);
            let groups = walk_node(page, &mut each);
            for group in groups.into_iter().flatten() {
                let places = walk_node(group, &mut each);
                places.into_iter().flatten().for_each(&mut each);
            }
        }
    }
}

fn walk_node<'a, Kids>(node: &'a Node<Kids>, each: &mut impl FnMut(&AtomicU64)) -> Option<&'a Kids> {
    each(&node.own);
    let more = node.more.get()?;
    more.few.iter().for_each(each);
    more.kids.get()
}

/// Bytes of host memory that the nodes take, without what the allocator adds.
#[cfg(all(test, not(loom)))]
pub(super) fn host_bytes(root: &Root) -> usize {
    fn node<'a, Kids>(node: &'a Node<Kids>, sum: &mut usize) -> Option<&'a Kids> {
        let more = node.more.get()?;
        *sum += size_of_val(more);
        let kids = more.kids.get()?;
        *sum += size_of_val(kids);
        Some(kids)
    }
    let mut sum = size_of::<Root>();
    for region in root.iter().filter_map(OnceBox::get) {
        sum += size_of::<Region>();
        for page in region {
            for group in node(page, &mut sum).into_iter().flatten() {
                node(group, &mut sum);
            }
        }
    }
    sum
}
