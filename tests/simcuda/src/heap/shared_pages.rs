//! Small blocks: which shared page one goes to, and what becomes of the page.
//!
//! Pages with room are kept by the class of their longest free run, so that a block finds one without looking at all.

use simdevice::me;

use super::{Block, Kind, Region, Shelf};
use crate::codes::{CUresult, OUT_OF_MEMORY};
use crate::ctx::Context;
use crate::small::{CLASSES, SmallPage, class, units_of};
use crate::units::{PAGE, block_size, to_usize};

impl Region {
    fn page(&mut self, number: u32) -> Option<&mut SmallPage> {
        self.blocks.get_mut(to_usize(u64::from(number)))?.as_mut()?.small.as_mut()
    }

    pub(super) fn place_small(
        &mut self,
        context: &'static Context,
        id: u64,
        bytes: u64,
        kind: Kind,
    ) -> Result<u64, CUresult> {
        let asked = u32::try_from(bytes).map_err(|_| OUT_OF_MEMORY)?;
        let shelf = self.shelf((id, kind));
        for class in class(units_of(bytes))..CLASSES {
            // A few tries in a class: pages whose longest run turns out too short move to a lower one.
            for _ in 0..4 {
                let Some(&number) = self.shelves[shelf].pages[class].last() else {
                    break;
                };
                let placed = self.page(number).and_then(|page| page.place(asked));
                self.relist(shelf, number);
                if let Some(offset) = placed {
                    return Ok(self.placed(number, context, bytes, offset));
                }
            }
        }
        if !me().take_pages(context.device(), PAGE) {
            return Err(OUT_OF_MEMORY);
        }
        let table = self.tables.pop().unwrap_or_else(SmallPage::new);
        let block = Block {
            first: 0,
            pages: 1,
            asked: PAGE,
            kind,
            device: context.device(),
            owner: Some((context, id)),
            dirty: kind == Kind::Managed,
            small: Some(table),
        };
        let start = match self.insert(block) {
            Ok(start) => start,
            Err(code) => {
                me().give_pages(context.device(), PAGE);
                return Err(code);
            }
        };
        let number = self.arena.owner(start).ok_or(OUT_OF_MEMORY)?;
        let offset = self.page(number).and_then(|page| page.place(asked)).ok_or(OUT_OF_MEMORY)?;
        self.relist(shelf, number);
        Ok(self.placed(number, context, bytes, offset))
    }

    fn placed(&self, number: u32, context: &'static Context, bytes: u64, offset: u64) -> u64 {
        me().add_block(context.device(), block_size(bytes).unwrap_or(0));
        let first = self.block(number).map_or(0, |block| block.first);
        self.arena.address(first) + offset
    }

    pub(super) fn remove_small(&mut self, number: u32, address: u64) {
        let Some(block) = self.block(number) else {
            return;
        };
        let (device, key) = (block.device, (block.owner.map_or(0, |(_, id)| id), block.kind));
        let offset = address - self.arena.address(block.first);
        let shelf = self.shelf(key);
        let Some(page) = self.page(number) else {
            return;
        };
        let Some(asked) = page.remove(offset) else {
            return;
        };
        let empty = page.is_empty();
        me().remove_block(device, block_size(u64::from(asked)).unwrap_or(0));
        if !empty {
            self.relist(shelf, number);
            return;
        }
        self.unlist(shelf, number);
        let Some(mut block) = self.take_out(number) else {
            return;
        };
        if block.dirty {
            self.arena.punch(block.first, block.pages);
        }
        self.arena.give(block.first, block.pages);
        me().give_pages(device, PAGE);
        if let Some(mut table) = block.small.take() {
            table.clear();
            self.tables.push(table);
        }
    }

    fn shelf(&mut self, key: (u64, Kind)) -> usize {
        match self.shelves.iter().position(|shelf| shelf.key == key) {
            Some(index) => index,
            None => {
                self.shelves.push(Shelf { key, pages: Default::default() });
                self.shelves.len() - 1
            }
        }
    }

    /// Puts a page where its longest free run belongs.
    fn relist(&mut self, shelf: usize, number: u32) {
        let Some(page) = self.page(number) else {
            return;
        };
        let (now, wanted) = (page.listed.map(|(class, _)| class), page.class());
        if now == wanted {
            return;
        }
        self.unlist(shelf, number);
        if let Some(class) = wanted {
            let list = &mut self.shelves[shelf].pages[class];
            list.push(number);
            let place = list.len() - 1;
            if let Some(page) = self.page(number) {
                page.listed = Some((class, place));
            }
        }
    }

    fn unlist(&mut self, shelf: usize, number: u32) {
        let Some((class, place)) = self.page(number).and_then(|page| page.listed.take()) else {
            return;
        };
        let list = &mut self.shelves[shelf].pages[class];
        list.swap_remove(place);
        if let Some(&moved) = list.get(place)
            && let Some(page) = self.page(moved)
        {
            page.listed = Some((class, place));
        }
    }
}
