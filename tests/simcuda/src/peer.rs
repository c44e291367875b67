//! Access of devices to each other: all of them can.

use std::collections::HashSet;
use std::sync::LazyLock;

use parking_lot::Mutex;

use crate::api::{Out, code, cuda_api};
use crate::codes::{
    CUresult, INVALID_DEVICE, INVALID_VALUE, PEER_ACCESS_ALREADY_ENABLED, PEER_ACCESS_NOT_ENABLED,
    PEER_ACCESS_UNSUPPORTED,
};
use crate::{ctx, devices};

/// (context, peer context) by id.
static ENABLED: LazyLock<Mutex<HashSet<(u64, u64)>>> = LazyLock::new(Mutex::default);

fn pair(peer: ctx::Handle) -> Result<(u64, u64), CUresult> {
    let context = ctx::require()?;
    let peer = ctx::from_handle(peer)?;
    if peer.device() == context.device() { Err(PEER_ACCESS_UNSUPPORTED) } else { Ok((context.id(), peer.id())) }
}

cuda_api! {
    fn cuDeviceCanAccessPeer(out: Out<i32>, device: i32, peer: i32) -> CUresult {
        if out.is_null() {
            return INVALID_VALUE;
        }
        match devices::machine(device).and_then(|device| Ok((device, devices::machine(peer)?))) {
            Ok((device, peer)) => out.answer(i32::from(device != peer)),
            Err(code) => code,
        }
    }

    fn cuDeviceGetP2PAttribute(out: Out<i32>, attribute: u32, device: i32, peer: i32) -> CUresult {
        const PERFORMANCE_RANK: u32 = 1;
        const LAST: u32 = 5;
        if out.is_null() || !(PERFORMANCE_RANK..=LAST).contains(&attribute) {
            return INVALID_VALUE;
        }
        match devices::machine(device).and_then(|device| Ok((device, devices::machine(peer)?))) {
            Ok((device, peer)) if device == peer => INVALID_DEVICE,
            Ok(_) => out.answer(i32::from(attribute != PERFORMANCE_RANK)),
            Err(code) => code,
        }
    }

    fn cuCtxEnablePeerAccess(peer: ctx::Handle, flags: u32) -> CUresult {
        if flags != 0 {
            return INVALID_VALUE;
        }
        code(pair(peer).and_then(|pair| {
            if ENABLED.lock().insert(pair) { Ok(()) } else { Err(PEER_ACCESS_ALREADY_ENABLED) }
        }))
    }

    fn cuCtxDisablePeerAccess(peer: ctx::Handle) -> CUresult {
        code(pair(peer).and_then(|pair| {
            if ENABLED.lock().remove(&pair) { Ok(()) } else { Err(PEER_ACCESS_NOT_ENABLED) }
        }))
    }
}
