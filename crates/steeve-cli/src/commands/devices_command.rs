//! `steeve devices`: what there is to compute on, and how much memory it has.

use std::io::Write;
use std::sync::Arc;

use serde::Serialize;
use steeve_cpu::CpuDevice;
#[cfg(feature = "cuda")]
use steeve_cuda::CudaDevice;
use steeve_device::{Bytes, Device, DeviceKind};

use crate::args::DevicesArgs;
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::json_lines::{JSON_VERSION, print_line};
use crate::text_table::{name_cell, new_table};
use crate::verbosity::Verbosity;

/// What `--json` prints for one device.
#[derive(Debug, Serialize)]
struct DeviceLine<'a> {
    version: u32,
    name: &'a str,
    kind: &'static str,
    description: &'a str,
    free: Bytes,
    total: Bytes,
}

pub(crate) fn run(args: &DevicesArgs, verbosity: Verbosity, out: &mut impl Write) -> Result<ExitStatus, Error> {
    let devices = devices(verbosity);
    let lines = devices.iter().map(|device| {
        let memory = device.memory();
        DeviceLine {
            version: JSON_VERSION,
            name: device.name(),
            kind: kind(device.kind()),
            description: device.description(),
            free: memory.free,
            total: memory.total,
        }
    });
    if args.output.json {
        for line in lines {
            print_line(out, &line)?;
        }
        return Ok(ExitStatus::Success);
    }
    let sizes = args.output.sizes();
    let mut table = new_table(["device", "kind", "free", "memory", "what it is"].map(String::from));
    for line in lines {
        let (free, total) = (sizes.show(line.free), sizes.show(line.total));
        table.add_row([
            name_cell(line.name),
            name_cell(line.kind),
            name_cell(&free),
            name_cell(&total),
            name_cell(line.description),
        ]);
    }
    writeln!(out, "{table}").map_err(Error::Output)?;
    Ok(ExitStatus::Success)
}

/// Returns all devices, the GPUs first and the processor last; a note says why a GPU is missing.
fn devices(verbosity: Verbosity) -> Vec<Arc<dyn Device>> {
    let mut devices = gpus(verbosity);
    devices.push(Arc::new(CpuDevice::new()));
    devices
}

/// Returns the NVIDIA GPUs that can be used; a note says why one, or the driver, cannot.
#[cfg(feature = "cuda")]
fn gpus(verbosity: Verbosity) -> Vec<Arc<dyn Device>> {
    let mut gpus: Vec<Arc<dyn Device>> = Vec::new();
    match CudaDevice::each() {
        Ok(found) if found.is_empty() => verbosity.note("no NVIDIA GPU: the driver reports none"),
        Ok(found) => {
            for gpu in found {
                match gpu {
                    Ok(gpu) => {
                        if let Some(why) = gpu.why_no_cublas() {
                            verbosity.note(format_args!("{}: cuBLAS is not available: {why}", gpu.name()));
                        }
                        gpus.push(Arc::new(gpu));
                    }
                    Err(why) => verbosity.note(format_args!("NVIDIA GPU: not usable: {why}")),
                }
            }
        }
        Err(why) => verbosity.note(format_args!("no NVIDIA GPU: {why}")),
    }
    gpus
}

/// Returns no GPUs, and says in a note that this build lists none.
#[cfg(not(feature = "cuda"))]
fn gpus(verbosity: Verbosity) -> Vec<Arc<dyn Device>> {
    verbosity.note("NVIDIA GPUs are not listed: this steeve was built without the cargo feature cuda");
    Vec::new()
}

fn kind(kind: DeviceKind) -> &'static str {
    match kind {
        DeviceKind::Gpu => "GPU",
        DeviceKind::IntegratedGpu => "integrated GPU",
        DeviceKind::Accelerator => "accelerator",
        DeviceKind::Cpu => "processor",
        _ => "other",
    }
}
