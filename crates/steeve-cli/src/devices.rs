//! `steeve devices`: what there is to compute on, and how much memory it has.

use std::io::Write;
use std::sync::Arc;

use serde::Serialize;
use steeve_cpu::CpuDevice;
use steeve_cuda::CudaDevice;
use steeve_device::{Bytes, Device, DeviceKind};

use crate::answer::{Answer, Voice};
use crate::args::DevicesArgs;
use crate::error::Error;
use crate::json::{VERSION, print_line};
use crate::table::{table, text};

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

pub(crate) fn run(args: &DevicesArgs, voice: Voice, out: &mut impl Write) -> Result<Answer, Error> {
    let devices = devices(voice);
    let lines = devices.iter().map(|device| {
        let memory = device.memory();
        DeviceLine {
            version: VERSION,
            name: device.name(),
            kind: kind(device.kind()),
            description: device.description(),
            free: memory.free,
            total: memory.total,
        }
    });
    if args.show.json {
        for line in lines {
            print_line(out, &line)?;
        }
        return Ok(Answer::Yes);
    }
    let sizes = args.show.sizes();
    let mut table = table(["device", "kind", "free", "memory", "what it is"].map(String::from));
    for line in lines {
        let (free, total) = (sizes.show(line.free), sizes.show(line.total));
        table.add_row([text(line.name), text(line.kind), text(&free), text(&total), text(line.description)]);
    }
    writeln!(out, "{table}").map_err(Error::Output)?;
    Ok(Answer::Yes)
}

/// All devices, the fast ones first; a note says why there is no GPU.
fn devices(voice: Voice) -> Vec<Arc<dyn Device>> {
    let mut devices: Vec<Arc<dyn Device>> = Vec::new();
    match CudaDevice::each() {
        Ok(found) if found.is_empty() => voice.note("no NVIDIA GPU: the driver knows of none"),
        Ok(found) => {
            for device in found {
                match device {
                    Ok(device) => {
                        if let Some(why) = device.why_no_cublas() {
                            voice.note(format_args!("{} multiplies matrices without cuBLAS: {why}", device.name()));
                        }
                        devices.push(Arc::new(device));
                    }
                    Err(why) => voice.note(format_args!("a GPU can't be used: {why}")),
                }
            }
        }
        Err(why) => voice.note(format_args!("no NVIDIA GPU: {why}")),
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
