//! What a simulated device says of itself: the values of `cuDeviceGetAttribute`, after an H100.

use simdevice::Knobs;

/// Highest attribute that any header names (13.5).
const LAST: i32 = 161;
/// Names of a few (cuda.h, `CUdevice_attribute`).
const INTEGRATED: i32 = 18;
const PCI_BUS_ID: i32 = 33;
const PCI_DEVICE_ID: i32 = 34;
const PCI_DOMAIN_ID: i32 = 50;
const COMPUTE_CAPABILITY_MAJOR: i32 = 75;
const COMPUTE_CAPABILITY_MINOR: i32 = 76;
const PAGEABLE_MEMORY_ACCESS: i32 = 88;
const DIRECT_MANAGED_MEM_ACCESS_FROM_HOST: i32 = 101;

/// (attribute, value); what is not listed is 0.
const VALUES: &[(i32, i32)] = &[
    (1, 1024), // threads per block
    (2, 1024), // block x, y, z
    (3, 1024),
    (4, 64),
    (5, i32::MAX), // grid x, y, z
    (6, 65535),
    (7, 65535),
    (8, 49152),      // shared memory per block
    (9, 65536),      // constant memory
    (10, 32),        // warp
    (11, i32::MAX),  // pitch
    (12, 65536),     // registers per block
    (13, 1_980_000), // kHz
    (14, 512),       // texture alignment
    (15, 1),         // copies overlap
    (16, 132),       // multiprocessors
    (19, 1),         // maps host memory
    (21, 131_072),   // texture and surface extents
    (22, 131_072),
    (23, 65536),
    (24, 16384),
    (25, 16384),
    (26, 16384),
    (27, 32768),
    (28, 32768),
    (29, 2048),
    (30, 512),
    (31, 1),          // concurrent kernels
    (32, 1),          // ECC
    (36, 2_619_000),  // memory kHz
    (37, 5120),       // bus bits
    (38, 52_428_800), // L2
    (39, 2048),       // threads per multiprocessor
    (40, 3),          // async engines
    (41, 1),          // unified addressing
    (42, 32768),
    (43, 2048),
    (45, 32768),
    (46, 32768),
    (47, 8192),
    (48, 8192),
    (49, 32768),
    (51, 32), // texture pitch alignment
    (52, 32768),
    (53, 32768),
    (54, 2046),
    (55, 32768),
    (56, 131_072),
    (57, 65536),
    (58, 16384),
    (59, 16384),
    (60, 16384),
    (61, 32768),
    (62, 2048),
    (63, 32768),
    (64, 32768),
    (65, 2048),
    (66, 32768),
    (67, 32768),
    (68, 2046),
    (69, 268_435_456),
    (70, 131_072),
    (71, 65000),
    (72, 2_097_120),
    (73, 32768),
    (74, 32768),
    (77, 32768),
    (78, 1), // stream priorities
    (79, 1), // L1 caches globals, locals
    (80, 1),
    (81, 233_472), // shared memory per multiprocessor
    (82, 65536),   // registers per multiprocessor
    (83, 1),       // managed memory
    (87, 2),       // single to double ratio
    (89, 1),       // concurrent managed access
    (90, 1),       // preemption
    (91, 1),       // host pointer for registered memory
    (93, 1),
    (95, 1), // cooperative launch
    (96, 1),
    (97, 232_448),      // opt-in shared memory
    (98, 1),            // flush remote writes
    (99, 1),            // host register
    (102, 1),           // virtual memory management
    (103, 1),           // file descriptors
    (106, 32),          // blocks per multiprocessor
    (108, 32_768_000),  // persisting L2
    (109, 134_213_632), // access policy window
    (110, 1),           // GPUDirect RDMA with VMM
    (111, 1024),        // reserved shared memory
    (113, 1),           // read-only host register
    (114, 1),           // timeline semaphores
    (115, 1),           // memory pools
    (116, 1),           // GPUDirect RDMA
    (117, 1),
    (118, 200),
    (119, 1), // pools export file descriptors
    (120, 1), // clusters
    (122, 1),
    (123, 1),
    (125, 1),  // IPC events
    (126, 4),  // memory sync domains
    (127, 1),  // tensor maps
    (129, 1),  // function pointers
    (131, -1), // NUMA node of the device's memory: none
    (134, 0),
    (139, 0x2330_10de), // PCI device and vendor
    (140, 0x16c1_10de),
];

/// The PCI address (domain, bus, device) of a device of the machine. The simulated NVML has the same rule.
pub fn pci(device: usize) -> [i32; 3] {
    [0, 1 + i32::try_from(device).unwrap_or(0), 0]
}

/// The value of `attribute` for a device of the machine; `None` if there is no such attribute.
pub fn value(attribute: i32, device: usize) -> Option<i32> {
    let knobs = Knobs::get();
    let capability = |part: u32| i32::try_from(part).unwrap_or(0);
    let [domain, bus, slot] = pci(device);
    Some(match attribute {
        INTEGRATED | PAGEABLE_MEMORY_ACCESS | DIRECT_MANAGED_MEM_ACCESS_FROM_HOST => i32::from(knobs.integrated),
        PCI_BUS_ID => bus,
        PCI_DEVICE_ID => slot,
        PCI_DOMAIN_ID => domain,
        COMPUTE_CAPABILITY_MAJOR => capability(knobs.compute_capability.0),
        COMPUTE_CAPABILITY_MINOR => capability(knobs.compute_capability.1),
        1..=LAST => VALUES.iter().find(|row| row.0 == attribute).map_or(0, |row| row.1),
        _ => return None,
    })
}
