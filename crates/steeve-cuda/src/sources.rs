//! The sources of the kernels, by family: files, behind the declarations that Rust makes for them.

use crate::cuda_c::Declarations;
use crate::params::{AssertSite, Tensor};
use crate::{data_types, kernel_list};

/// Kernels that are compiled together. What takes long to compile has a family to itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelFamily {
    /// Its name in [`kernel_list`].
    pub(crate) name: &'static str,
    files: &'static [SourceFile],
}

/// The name and the text of a file.
type SourceFile = (&'static str, &'static str);

macro_rules! files {
    ($($name:literal)*) => { &[$(($name, include_str!(concat!("../cuda/", $name)))),*] };
}

const NUMBERS: &[SourceFile] = files!("numbers.cu");
const COMMON: &[SourceFile] = files!("common.cu");

pub(crate) const FAMILIES: &[KernelFamily] = &[
    KernelFamily { name: "elementwise", files: files!("elementwise.cu") },
    KernelFamily { name: "rows", files: files!("rows.cu") },
    KernelFamily { name: "movement", files: files!("formats.cu" "movement.cu") },
    KernelFamily { name: "image", files: files!("image.cu") },
    KernelFamily { name: "matrix", files: files!("formats.cu" "columns.cu" "matrix.cu") },
    KernelFamily { name: "blocks", files: files!("formats.cu" "columns.cu" "blocks.cu") },
    KernelFamily { name: "experts", files: files!("formats.cu" "mma.cu" "experts.cu") },
    KernelFamily { name: "attention", files: files!("queries.cu" "attention.cu") },
    KernelFamily { name: "many_f16", files: files!("mma.cu" "queries.cu" "many.cu" "many_f16.cu") },
    KernelFamily { name: "many_bf16", files: files!("mma.cu" "queries.cu" "many.cu" "many_bf16.cu") },
];

fn add_files(files: &[SourceFile], source: &mut String) {
    files.iter().for_each(|(name, text)| source.extend(["#line 1 \"", name, "\"\n", text]));
}

/// Returns what all kernels share, behind the declarations of what they share.
fn shared() -> (String, Declarations) {
    let mut declarations = Declarations::default();
    declarations.add::<Tensor>();
    declarations.add::<AssertSite>();
    let mut source = String::new();
    add_files(NUMBERS, &mut source);
    source.extend(["#line 1 \"declarations of all families\"\n", &data_types::declarations(), &declarations.take()]);
    add_files(COMMON, &mut source);
    (source, declarations)
}

/// Returns what is ahead of the source of a caller's kernel, whose `call` is declared so.
pub(crate) fn custom(call: &str) -> String {
    let (mut source, _) = shared();
    source.extend(["#line 1 \"declaration of the call\"\n", call]);
    add_files(files!("custom.cu"), &mut source);
    source
}

impl KernelFamily {
    /// Returns all that is compiled. Errors of the compiler name the file.
    pub(crate) fn source(&self) -> String {
        let (mut source, mut declarations) = shared();
        kernel_list::declare_params(self.name, &mut declarations);
        source.extend(["#line 1 \"declarations of this family\"\n", &declarations.take()]);
        add_files(self.files, &mut source);
        source
    }
}
