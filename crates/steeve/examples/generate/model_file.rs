//! A model of a file with its weights and caches in memory: mapped for the processor, uploaded once for a GPU.

use std::fs::File;
use std::io::BufReader;
use std::path::Path;
use std::sync::Arc;

use indicatif::{ProgressBar, ProgressStyle};
use steeve::graph::InputLimit;
use steeve::prelude::*;
use steeve_models::gguf::{GgufHeader, LanguageModel, ModelMemory, ModelTensor, SessionSize};

use crate::{Failure, chain};

/// A file that has been opened, of which only the header has been read.
pub(crate) struct ModelFile {
    name: String,
    file: File,
    pub(crate) header: GgufHeader,
}

/// The devices that compute, the GPU first.
pub(crate) struct Devices {
    pub(crate) cpu: Arc<dyn Device>,
    pub(crate) gpu: Option<Arc<dyn Device>>,
    pub(crate) layers_on_gpu: u64,
}

/// Weights and caches in memory.
pub(crate) struct LoadedModel {
    pub(crate) model: LanguageModel,
    pub(crate) context: Context,
    pub(crate) bindings: Bindings,
    /// What weights and caches take, by device, the GPU first if there is one.
    pub(crate) bytes: Vec<Bytes>,
}

/// The bytes that are read at a time.
const PIECE: u64 = 4 << 20;

impl ModelFile {
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let name = path.display().to_string();
        let file = File::open(path).map_err(|error| format!("{name}: {error}"))?;
        let header = GgufHeader::read(BufReader::new(&file), InputLimit::DEFAULT);
        let header = header.map_err(|error| chain(&name, &error))?;
        header.check_data(Bytes(file.metadata()?.len())).map_err(|error| chain(&name, &error))?;
        Ok(Self { name, file, header })
    }

    /// Returns the size of a text and a batch that is used where none is given.
    pub(crate) fn usual_size(&self) -> Result<SessionSize, Failure> {
        SessionSize::usual(&self.header).map_err(|error| chain(&self.name, &error).into())
    }

    /// Refuses a model that takes more than `capacity` of the device that `--device` names. Nothing has been allocated yet.
    pub(crate) fn check_capacity(
        &self,
        size: SessionSize,
        layers: u64,
        capacity: Option<Bytes>,
    ) -> Result<(), Failure> {
        let Some(capacity) = capacity else { return Ok(()) };
        let needs = ModelMemory::plan(&self.header, size, layers)?;
        match needs.devices.first() {
            Some(device) if device.total() > capacity => Err(format!(
                "{}: does not fit: capacity {capacity} bytes, {} needed: weights {}, caches {}, compute {}",
                device.name,
                device.total(),
                device.weights,
                device.caches,
                device.compute
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// Refuses a text that is longer than the context, or has tokens that the model does not have. Nothing has been loaded yet.
    pub(crate) fn check_text(&self, size: SessionSize, tokens: &[&[i32]]) -> Result<(), Failure> {
        let text = tokens.iter().map(|part| part.len() as u64).sum::<u64>();
        if text > size.context {
            return Err(format!("--context {}: too short for a text of {text} tokens", size.context).into());
        }
        let model = LanguageModel::new(&mut Context::new(), &self.header, size);
        let vocabulary = model.map_err(|error| chain(&self.name, &error))?.vocabulary();
        let is_unknown = |token: &&i32| u64::try_from(**token).map_or(true, |token| token >= vocabulary);
        match tokens.iter().copied().flatten().find(is_unknown) {
            Some(token) => Err(format!("token {token}: no such token: the model has 0 to {}", vocabulary - 1).into()),
            None => Ok(()),
        }
    }

    /// Brings weights into memory, and makes caches.
    pub(crate) fn load(self, size: SessionSize, devices: &Devices) -> Result<LoadedModel, Failure> {
        let mut context = Context::new();
        let model = LanguageModel::new(&mut context, &self.header, size)?;
        let file = SharedBuffer::map_file(&self.name, &self.file, Usage::Weights)?;
        let bar = progress_bar(self.header.weights())?;
        let (mut bindings, mut bytes) = (Bindings::new(), Vec::new());
        for device in devices.gpu.iter().chain([&devices.cpu]) {
            let on_gpu = devices.gpu.as_ref().is_some_and(|gpu| Arc::ptr_eq(gpu, device));
            let is_here = |tensor: &&ModelTensor| model.is_on_gpu(tensor, devices.layers_on_gpu) == on_gpu;
            let (caches, weights): (Vec<_>, Vec<_>) =
                model.tensors().iter().filter(is_here).partition(|tensor| tensor.is_cache());
            let memory = device.default_buffer_type().ok_or("a device without memory")?;
            let mut loader = Loader { context: &context, file: &file, bar: &bar, bindings: &mut bindings };
            let weights = if on_gpu { loader.upload(&weights, memory)? } else { loader.bind_in_file(&weights)? };
            let caches = loader.allocate(&caches, memory, Usage::Any)?;
            bytes.push(Bytes(weights.0 + caches.0));
        }
        bar.finish_and_clear();
        Ok(LoadedModel { model, context, bindings, bytes })
    }
}

fn progress_bar(weights: Bytes) -> Result<ProgressBar, Failure> {
    let style = ProgressStyle::with_template("loading {bar:40} {bytes}/{total_bytes} {bytes_per_sec}")?;
    Ok(ProgressBar::new(weights.0).with_style(style))
}

struct Loader<'a> {
    context: &'a Context,
    file: &'a SharedBuffer,
    bar: &'a ProgressBar,
    bindings: &'a mut Bindings,
}

impl Loader<'_> {
    /// Binds weights where they are in the file. Reading them once brings them into memory, so that the first token does not
    /// wait for the disk.
    fn bind_in_file(&mut self, weights: &[&ModelTensor]) -> Result<Bytes, Failure> {
        let mut sum = 0;
        for tensor in weights {
            let Some(data) = &tensor.data else { continue };
            let size = data.layout.nbytes();
            self.bindings.bind(tensor.id, self.file, data.position, size)?;
            self.pieces(data.position, size, |_, _| Ok(()))?;
            sum += size.0;
        }
        Ok(Bytes(sum))
    }

    /// Copies weights into one buffer of a device.
    fn upload(&mut self, weights: &[&ModelTensor], memory: &Arc<dyn BufferType>) -> Result<Bytes, Failure> {
        let size = self.allocate(weights, memory, Usage::Weights)?;
        for tensor in weights {
            let (Some(data), Some(address)) = (&tensor.data, self.bindings.get(tensor.id)) else { continue };
            let (buffer, start) = (address.buffer.clone(), address.offset.0);
            self.pieces(data.position, data.layout.nbytes(), |done, piece| {
                Ok(buffer.write(Offset(start + done), piece)?)
            })?;
        }
        Ok(size)
    }

    /// Makes one buffer with these tensors in it.
    fn allocate(
        &mut self,
        tensors: &[&ModelTensor],
        memory: &Arc<dyn BufferType>,
        usage: Usage,
    ) -> Result<Bytes, Failure> {
        let size = |tensor: &&ModelTensor| {
            memory.alloc_size(self.context.tensors(), tensor.id).0.next_multiple_of(memory.align().get())
        };
        let size = Bytes(tensors.iter().map(size).sum());
        let buffer = SharedBuffer::allocate(memory, size, usage)?;
        let mut allocator = TensorAllocator::new(&buffer);
        for tensor in tensors {
            let address = allocator.alloc(self.context, tensor.id)?;
            self.bindings.bind(tensor.id, &buffer, address.offset, address.size)?;
        }
        Ok(size)
    }

    /// Reads a part of the file piece by piece.
    fn pieces(
        &self,
        position: Offset,
        size: Bytes,
        mut act: impl FnMut(u64, &[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let mut piece = vec![0; usize::try_from(PIECE.min(size.0))?];
        let mut done = 0;
        while done < size.0 {
            let length = usize::try_from(PIECE.min(size.0 - done))?;
            self.file.read(Offset(position.0 + done), &mut piece[..length])?;
            act(done, &piece[..length])?;
            done += length as u64;
            self.bar.inc(length as u64);
        }
        Ok(())
    }
}
