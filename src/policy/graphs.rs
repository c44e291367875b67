//! Graph memory: charged by what each device keeps for graphs, reserved before a launch that may make it grow.

use super::{Failure, Governor};
use crate::budget::Lane;
use crate::code::Code;
use crate::driver::Driver;
use crate::graph_memory::{GraphMemory, Needs, pool_handle};

impl Governor<'_> {
    /// The graphs that own memory.
    #[inline]
    pub fn graphs(&self) -> &GraphMemory {
        &self.graphs
    }

    /// `cuGraphLaunch` of a graph that owns memory, on a stream that is not captured. `None` for a graph that does
    /// nothing to memory: make the call as it is.
    pub fn graph_launch<D: Driver>(
        &self,
        driver: &D,
        lane: Lane,
        exec: usize,
        call: impl FnOnce() -> Code,
    ) -> Option<Result<(), Failure>> {
        let needs = self.graphs.needs_of_launch(exec)?;
        let devices: Vec<u32> = needs.iter().map(|(device, _)| *device).collect();
        let launched = self.graph_work(driver, lane, &needs, || call().ok());
        if launched.is_ok() {
            let level = |device| Some((device, driver.pool_levels(pool_handle(device))?.reserved));
            let reserved: Needs = devices.into_iter().filter_map(level).collect();
            self.graphs.launched(exec, &reserved);
        }
        Some(launched)
    }

    /// A call that may take the memory that `needs` names.
    ///
    /// # Errors
    /// See [`Failure`].
    pub fn graph_work<D: Driver, T>(
        &self,
        driver: &D,
        lane: Lane,
        needs: &[(u32, u64)],
        call: impl FnOnce() -> Result<T, Code>,
    ) -> Result<T, Failure> {
        let mut reserved = Vec::with_capacity(needs.len());
        let mut refused = None;
        for &(device, bytes) in needs {
            let pool = self.pools.find(pool_handle(device), Some(device));
            let (Some(pool), Some(budget)) = (pool, self.budget(device)) else {
                continue;
            };
            match self.pool_start(driver, lane, pool, bytes, &budget) {
                Ok(reservation) => reserved.push((pool, bytes, budget, reservation)),
                Err(failure) => {
                    refused = Some(failure);
                    break;
                }
            }
        }
        let result = match refused {
            Some(failure) => Err(failure),
            None => call().map_err(Failure::Driver),
        };
        for (pool, bytes, budget, reservation) in reserved {
            let reading = self.read(driver, pool);
            if result.is_ok() {
                self.pools.used(pool, bytes, reading, &budget, reservation);
            } else {
                self.pools.cancel(pool, bytes, reading, &budget, reservation);
            }
        }
        result
    }
}
