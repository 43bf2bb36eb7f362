//! A language model as the command plans it: from its header alone, the graph of the largest batch of a prompt, and what the model
//! takes of each device.

use std::sync::Arc;

use steeve_models::gguf::{DeviceMemory, GgufHeader, ModelMemory, SessionSize};

use crate::args::LanguageArgs;
use crate::error::Error;

/// A model, and the size it is planned for.
#[derive(Clone, Debug)]
pub(crate) struct LanguageFile {
    file: String,
    header: Arc<GgufHeader>,
    size: SessionSize,
    memory: ModelMemory,
}

impl LanguageFile {
    pub(crate) fn new(file: String, header: GgufHeader) -> Result<Self, Error> {
        Self::sized(file, Arc::new(header), &LanguageArgs::default())
    }

    /// Returns the model under what the command line says of its size.
    pub(crate) fn with_size(&self, args: &LanguageArgs) -> Result<Self, Error> {
        Self::sized(self.file.clone(), Arc::clone(&self.header), args)
    }

    fn sized(file: String, header: Arc<GgufHeader>, args: &LanguageArgs) -> Result<Self, Error> {
        let planned = || {
            let size = SessionSize::usual(&header)?.with(args.context, args.batch);
            Ok((size, ModelMemory::plan(&header, size, args.layers_on_gpu.unwrap_or(0))?))
        };
        match planned() {
            Ok((size, memory)) => Ok(Self { file, header, size, memory }),
            Err(source) => Err(Error::Gguf { file, source: Box::new(source) }),
        }
    }

    /// Returns what the model takes of each device.
    pub(crate) fn memory(&self) -> &ModelMemory {
        &self.memory
    }

    /// Returns the size it is planned for, with what each device needs.
    pub(crate) fn needs(&self) -> LanguageNeeds {
        LanguageNeeds { size: self.size, devices: self.memory.devices.clone() }
    }
}

/// What a model takes of each device, for a size.
#[derive(Clone, Debug)]
pub(crate) struct LanguageNeeds {
    pub(crate) size: SessionSize,
    pub(crate) devices: Vec<DeviceMemory>,
}
