//! The driver's result codes (`CUresult`), as plain integers.

/// What every function of the driver returns.
pub type CUresult = u32;

pub const INVALID_VALUE: CUresult = 1;
pub const OUT_OF_MEMORY: CUresult = 2;
pub const NOT_INITIALIZED: CUresult = 3;
pub const NO_DEVICE: CUresult = 100;
pub const INVALID_DEVICE: CUresult = 101;
pub const INVALID_CONTEXT: CUresult = 201;
pub const UNSUPPORTED_LIMIT: CUresult = 215;
pub const PEER_ACCESS_UNSUPPORTED: CUresult = 217;
pub const FILE_NOT_FOUND: CUresult = 301;
pub const INVALID_HANDLE: CUresult = 400;
pub const ILLEGAL_STATE: CUresult = 401;
pub const NOT_FOUND: CUresult = 500;
pub const NOT_READY: CUresult = 600;
pub const ILLEGAL_ADDRESS: CUresult = 700;
pub const PEER_ACCESS_ALREADY_ENABLED: CUresult = 704;
pub const PEER_ACCESS_NOT_ENABLED: CUresult = 705;
pub const PRIMARY_CONTEXT_ACTIVE: CUresult = 708;
pub const CONTEXT_IS_DESTROYED: CUresult = 709;
pub const HOST_MEMORY_ALREADY_REGISTERED: CUresult = 712;
pub const HOST_MEMORY_NOT_REGISTERED: CUresult = 713;
pub const NOT_PERMITTED: CUresult = 800;
pub const NOT_SUPPORTED: CUresult = 801;
pub const STREAM_CAPTURE_UNSUPPORTED: CUresult = 900;
pub const STREAM_CAPTURE_INVALIDATED: CUresult = 901;
pub const STREAM_CAPTURE_UNMATCHED: CUresult = 903;
pub const STREAM_CAPTURE_IMPLICIT: CUresult = 906;
pub const STREAM_CAPTURE_WRONG_THREAD: CUresult = 908;
pub const UNKNOWN: CUresult = 999;
