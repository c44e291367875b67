//! The `SIMCUDA_*` variables: how the simulated machine is and how it misbehaves.

use std::env;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::layout::MAX_DEVICES;

/// One mebibyte.
pub const MIB: u64 = 1 << 20;

/// One device of the simulated machine.
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// Bytes.
    pub total: u64,
    /// UUID as the driver reports it.
    pub uuid: [u8; 16],
}

/// `SIMCUDA_NVML`: what the simulated NVML can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nvml {
    /// Everything.
    Ok,
    /// nvmlInit fails.
    Absent,
    /// Memory is known, processes are not.
    Partial,
    /// Every call takes this many milliseconds.
    Slow(u64),
    /// nvmlInit says that the kernel driver is not loaded.
    NotLoaded,
}

/// One rule of `SIMCUDA_LATENCY_US`.
#[derive(Clone, Debug)]
pub struct Latency {
    /// The function, `None` for all.
    pub function: Option<String>,
    /// Slept inside the call, before its effect.
    pub micros: u64,
}

/// One rule of `SIMCUDA_FAIL`.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The function, `None` for any function that allocates.
    pub function: Option<String>,
    /// The how-manieth call of this process fails, counted from 1; `None` = every call.
    pub nth: Option<u64>,
    /// The CUresult.
    pub code: u32,
}

/// All knobs of one process.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// `SIMCUDA_STATE`: file that the processes of one machine share; none: this process and its forks only.
    pub state: Option<PathBuf>,
    /// `SIMCUDA_DEVICES` (1), `SIMCUDA_TOTAL_MIB` (16384; a comma list is per device), `SIMCUDA_UUIDS`. An existing
    /// state file has its own.
    pub devices: Vec<DeviceSpec>,
    /// `SIMCUDA_NAME`; a comma list is per device.
    pub names: Vec<String>,
    /// `SIMCUDA_FASTEST` (0): the number of the device that CUDA puts first, unless it numbers by bus.
    pub fastest: usize,
    /// `SIMCUDA_CC` (9.0).
    pub compute_capability: (u32, u32),
    /// `SIMCUDA_DRIVER` (13000): names newer than it are absent.
    pub driver: u32,
    /// `SIMCUDA_CTX_MIB` (0), in bytes: cost of a process's contexts on a device while one is alive.
    pub context_bytes: u64,
    /// `SIMCUDA_MODULE_MIB` (0), in bytes: cost of each loaded module or library.
    pub module_bytes: u64,
    /// `SIMCUDA_LMEM_MIB` (0), in bytes: taken at the first launch in a context.
    pub local_memory_bytes: u64,
    /// `SIMCUDA_GRAN` (512): step of block sizes below 1 MiB; a power of two from 256 to 64 Ki.
    pub granularity: u64,
    /// `SIMCUDA_POOL_STEP_MIB` (32), in bytes: step in which stream-ordered pools grow.
    pub pool_step: u64,
    /// `SIMCUDA_INTEGRATED=1`: unified memory; NVML knows no memory sizes.
    pub integrated: bool,
    /// `SIMCUDA_MIG=1`: the devices are MIG instances, whose own UUIDs only cuDeviceGetUuid_v2 knows.
    pub mig: bool,
    /// `SIMCUDA_NVML`.
    pub nvml: Nvml,
    /// `SIMCUDA_RESERVED_MIB` (0), in bytes: memory of each device that NVML counts and CUDA never sees.
    pub reserved: u64,
    /// `SIMCUDA_NVML_PIDS` (0): added to every pid that NVML shows, as when it numbers processes by another namespace.
    pub nvml_pids: u32,
    /// `SIMCUDA_LATENCY_US`: `n` or `fn=n,fn=n`.
    pub latency: Vec<Latency>,
    /// `SIMCUDA_HIDE`: names that cuGetProcAddress does not know.
    pub hide: Vec<String>,
    /// `SIMCUDA_FAIL`: `fn:n:code,…`; `*` for any n or any allocating function.
    pub fail: Vec<Failure>,
    /// `SIMCUDA_MPS_LIMIT_MIB`, in bytes: the driver's own limit per process and device.
    pub mps_limit: Option<u64>,
    /// `SIMCUDA_TRACE`: file that gets a line per call.
    pub trace: Option<PathBuf>,
    /// `SIMCUDA_IMPL`: another libcuda whose cuInit ours calls, as WSL's stub does.
    pub implementation: Option<PathBuf>,
    /// `CUDA_VISIBLE_DEVICES`.
    pub visible: Option<String>,
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID`.
    pub by_bus: bool,
}

impl Knobs {
    /// The knobs of this process: its environment at the first use. A forked child keeps them.
    pub fn get() -> &'static Knobs {
        static KNOBS: OnceLock<Knobs> = OnceLock::new();
        KNOBS.get_or_init(|| Knobs::parse(|name| env::var(name).ok()))
    }

    /// The knobs that `variable` gives, by full name.
    ///
    /// # Panics
    /// On a value that makes no sense: a test set-up error, said loudly.
    pub fn parse(variable: impl Fn(&str) -> Option<String>) -> Knobs {
        let knob = |name: &str| variable(&format!("SIMCUDA_{name}")).filter(|value| !value.is_empty());
        let number = |name: &str, default: u64| knob(name).map_or(default, |value| parse(name, &value));
        let mib = |name: &str, default: u64| number(name, default) * MIB;
        let list = |name: &str| -> Vec<String> {
            knob(name).map(|value| value.split(',').map(str::to_owned).collect()).unwrap_or_default()
        };
        let granularity = number("GRAN", 512);
        assert!(
            granularity.is_power_of_two() && (256..=64 << 10).contains(&granularity),
            "SIMCUDA_GRAN={granularity}: a power of two from 256 to 65536"
        );
        Knobs {
            state: knob("STATE").map(PathBuf::from),
            devices: devices(number("DEVICES", 1), &list("TOTAL_MIB"), &list("UUIDS")),
            names: list("NAME"),
            fastest: usize::try_from(number("FASTEST", 0)).unwrap_or(0),
            compute_capability: knob("CC").map_or((9, 0), |value| {
                let (major, minor) = value.split_once('.').unwrap_or((&value, "0"));
                (parse("CC", major), parse("CC", minor))
            }),
            driver: knob("DRIVER").map_or(13000, |value| parse("DRIVER", &value)),
            context_bytes: mib("CTX_MIB", 0),
            module_bytes: mib("MODULE_MIB", 0),
            local_memory_bytes: mib("LMEM_MIB", 0),
            granularity,
            pool_step: mib("POOL_STEP_MIB", 32),
            integrated: knob("INTEGRATED").is_some_and(|value| value == "1"),
            mig: knob("MIG").is_some_and(|value| value == "1"),
            nvml: knob("NVML").map_or(Nvml::Ok, |value| nvml(&value)),
            nvml_pids: u32::try_from(number("NVML_PIDS", 0)).unwrap_or(0),
            reserved: mib("RESERVED_MIB", 0),
            latency: list("LATENCY_US").iter().map(|rule| latency(rule)).collect(),
            hide: list("HIDE"),
            fail: list("FAIL").iter().map(|rule| failure(rule)).collect(),
            mps_limit: knob("MPS_LIMIT_MIB").map(|value| parse::<u64>("MPS_LIMIT_MIB", &value) * MIB),
            trace: knob("TRACE").map(PathBuf::from),
            implementation: knob("IMPL").map(PathBuf::from),
            visible: variable("CUDA_VISIBLE_DEVICES"),
            by_bus: variable("CUDA_DEVICE_ORDER").is_some_and(|order| order == "PCI_BUS_ID"),
        }
    }

    /// What a device is called; the last name of a list stands for all that follow.
    pub fn name(&self, device: usize) -> &str {
        self.names.get(device).or(self.names.last()).map_or("Simulated H100", String::as_str)
    }
}

fn parse<T: std::str::FromStr>(name: &str, value: &str) -> T {
    value.trim().parse().unwrap_or_else(|_| panic!("SIMCUDA_{name}: {value:?} is no number"))
}

fn devices(count: u64, totals: &[String], uuids: &[String]) -> Vec<DeviceSpec> {
    let count = usize::try_from(count).unwrap_or(MAX_DEVICES).min(MAX_DEVICES);
    (0..count)
        .map(|index| {
            // The last total stands for all that follow.
            let total = totals.get(index).or(totals.last());
            DeviceSpec {
                total: total.map_or(16384, |value| parse("TOTAL_MIB", value)) * MIB,
                uuid: uuids.get(index).map_or_else(
                    || default_uuid(index),
                    |text| {
                        crate::visible::parse_uuid(text).unwrap_or_else(|| {
                            panic!("SIMCUDA_UUIDS: {text:?}: GPU-xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx")
                        })
                    },
                ),
            }
        })
        .collect()
}

/// Fixed, and different from the first byte on, so that short prefixes tell devices apart.
fn default_uuid(index: usize) -> [u8; 16] {
    let step = u8::try_from(index).unwrap_or(0).wrapping_mul(0x11);
    let mut uuid = *b"\xa0\x51\x3d\xc0\xde\x00\x4a\x11\x9b\x5e\x00\x00\x5e\xed\x00\x01";
    for byte in [0, 4, 15] {
        uuid[byte] = uuid[byte].wrapping_add(step);
    }
    uuid
}

fn nvml(value: &str) -> Nvml {
    match value.split_once(':') {
        None => match value {
            "ok" => Nvml::Ok,
            "absent" => Nvml::Absent,
            "partial" => Nvml::Partial,
            "notloaded" => Nvml::NotLoaded,
            _ => panic!("SIMCUDA_NVML: {value:?}: ok, absent, partial, slow:<ms>, notloaded"),
        },
        Some(("slow", millis)) => Nvml::Slow(parse("NVML", millis)),
        Some(_) => panic!("SIMCUDA_NVML: {value:?}: ok, absent, partial, slow:<ms>, notloaded"),
    }
}

fn latency(rule: &str) -> Latency {
    let (function, micros) = match rule.split_once('=') {
        Some((function, micros)) => (Some(function.to_owned()), micros),
        None => (None, rule),
    };
    Latency { function, micros: parse("LATENCY_US", micros) }
}

fn failure(rule: &str) -> Failure {
    let parts: Vec<&str> = rule.split(':').collect();
    let [function, nth, code] = parts[..] else { panic!("SIMCUDA_FAIL: {rule:?}: function:n:code") };
    Failure {
        function: (function != "*").then(|| function.to_owned()),
        nth: (nth != "*").then(|| parse("FAIL", nth)),
        code: parse("FAIL", code),
    }
}
