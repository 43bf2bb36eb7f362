//! `steeve devices`: what there is to compute on, and how much memory it has.

use std::io::Write;
use std::sync::Arc;

use serde::Serialize;
use steeve_cpu::CpuDevice;
use steeve_cuda::CudaDevice;
use steeve_device::{Bytes, Device, DeviceKind};

use crate::args::DevicesArgs;
use crate::error::Error;
use crate::exit_status::ExitStatus;
use crate::json_lines::{JSON_VERSION, print_line};
use crate::text_table::{table, text};
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
    let mut table = table(["device", "kind", "free", "memory", "what it is"].map(String::from));
    for line in lines {
        let (free, total) = (sizes.show(line.free), sizes.show(line.total));
        table.add_row([text(line.name), text(line.kind), text(&free), text(&total), text(line.description)]);
    }
    writeln!(out, "{table}").map_err(Error::Output)?;
    Ok(ExitStatus::Success)
}

/// All devices, the fast ones first; a note says why there is no GPU.
fn devices(verbosity: Verbosity) -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    match CudaDevice::each() {
        Ok(found) if found.is_empty() => verbosity.note("no NVIDIA GPU: the driver knows of none"),
        Ok(found) => {
            for device in found {
                match device {
                    Ok(device) => {
                        if let Some(why) = device.why_no_cublas() {
                            verbosity.note(format_args!("{} multiplies matrices without cuBLAS: {why}", device.name()));
                        }
                        devices.push(Arc::new(device));
                    }
                    Err(why) => verbosity.note(format_args!("a GPU can't be used: {why}")),
                }
            }
        }
        Err(why) => verbosity.note(format_args!("no NVIDIA GPU: {why}")),
    }
    devices.push(Arc::new(CpuDevice::new()));
    devices
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
