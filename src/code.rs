//! The driver's result codes as plain integers.
//!
//! A newer driver may return a code that this version has never heard of, so there is no Rust enum here: any value
//! passes through unchanged. Numbers are those of `CUresult` in cuda.h.

/// A `CUresult`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(transparent)]
pub struct Code(pub u32);

impl Code {
    /// The call did what was asked.
    pub const SUCCESS: Code = Code(0);
    /// An argument is out of range.
    pub const INVALID_VALUE: Code = Code(1);
    /// There is no memory left: also our refusal at the limit.
    pub const OUT_OF_MEMORY: Code = Code(2);
    /// `cuInit` has not been called, or has failed.
    pub const NOT_INITIALIZED: Code = Code(3);
    /// The library in place of the driver is none.
    pub const STUB_LIBRARY: Code = Code(34);
    /// No GPU is there.
    pub const NO_DEVICE: Code = Code(100);
    /// No context is current, or the one that is named is not valid.
    pub const INVALID_CONTEXT: Code = Code(201);
    /// A handle that is none, or not of this kind.
    pub const INVALID_HANDLE: Code = Code(400);
    /// A name that does not exist.
    pub const NOT_FOUND: Code = Code(500);
    /// The current context was destroyed.
    pub const CONTEXT_IS_DESTROYED: Code = Code(709);
    /// What was asked is not permitted here.
    pub const NOT_PERMITTED: Code = Code(800);
    /// What was asked is not supported.
    pub const NOT_SUPPORTED: Code = Code(801);
    /// The capture was broken before its end.
    pub const STREAM_CAPTURE_INVALIDATED: Code = Code(901);
    /// The capture ended before all streams in it had come together.
    pub const STREAM_CAPTURE_UNJOINED: Code = Code(904);
    /// Another stream's capture is in the way.
    pub const STREAM_CAPTURE_IMPLICIT: Code = Code(906);
    /// Something went wrong that has no other code.
    pub const UNKNOWN: Code = Code(999);

    /// Whether the call did what was asked.
    #[must_use]
    pub fn is_success(self) -> bool {
        self == Code::SUCCESS
    }

    /// `Ok(())` for success, else the code itself as the error.
    ///
    /// # Errors
    /// Any code but success.
    pub fn ok(self) -> Result<(), Code> {
        if self.is_success() { Ok(()) } else { Err(self) }
    }
}
