//! Allocates, copies and frees through cudarc, as Rust programs do: `cudarc-client MEBIBYTES`.
//!
//! Prints free and total bytes, then `ok` or the error of an allocation of that many mebibytes.

use cudarc::driver::{CudaContext, DriverError, result};

fn main() -> Result<(), DriverError> {
    let mebibytes: usize = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    let context = CudaContext::new(0)?;
    println!("{} {}", context.name()?, CudaContext::device_count()?);
    let (free, total) = result::mem_get_info()?;
    println!("{free} {total}");
    let stream = context.default_stream();
    let sent: Vec<u32> = (0..1000).collect();
    let on_device = stream.clone_htod(&sent)?;
    let got = stream.clone_dtoh(&on_device)?;
    assert_eq!(sent, got, "what went to the device comes back");
    let zeros = stream.clone_dtoh(&stream.alloc_zeros::<u8>(4096)?)?;
    assert!(zeros.iter().all(|byte| *byte == 0), "a memset reaches all of it");
    let large = stream.alloc_zeros::<u8>(mebibytes << 20);
    match &large {
        Ok(_) => println!("ok"),
        Err(error) => println!("{:?}", error.0),
    }
    stream.synchronize()
}
