//! Events: sets of them can be made, and nothing ever happens.

use crate::api::{INVALID_ARGUMENT, NOT_SUPPORTED, Out, SUCCESS, nvml_api};

/// An `nvmlEventSet_t`; all sets are one.
type EventSet = usize;

const SET: EventSet = 8;

nvml_api! {
    fn nvmlEventSetCreate(out: Out<EventSet>) -> Code {
        out.answer(SET)
    }

    fn nvmlEventSetFree(set: EventSet) -> Code {
        if set == SET { SUCCESS } else { INVALID_ARGUMENT }
    }

    fn nvmlDeviceRegisterEvents(_device: usize, _kinds: u64, set: EventSet) -> Code {
        if set == SET { NOT_SUPPORTED } else { INVALID_ARGUMENT }
    }
}
