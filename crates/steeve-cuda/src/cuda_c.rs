//! Values that Rust and CUDA C share: defined once, in Rust, and declared in CUDA C from that definition.
//!
//! ```text
//!   cuda_enum!   ->  a Rust enum,    and  enum struct Name : int { .. };
//!   cuda_struct! ->  a Rust struct,  and  struct Name { .. };  with an assertion for its size and each member's
//! ```
//!
//! A declaration brings those it needs along, so there is no list of them to keep.

use std::fmt::Write;
use std::marker::PhantomData;

/// Declarations in CUDA C, each of them once and behind those it needs.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    text: String,
    names: Vec<&'static str>,
}

impl Declarations {
    /// Adds the declaration of a type, unless it is there.
    pub(crate) fn add<T: CudaValue>(&mut self) {
        T::declare(self);
    }

    /// Returns everything declared since this was last asked.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.text)
    }

    /// Returns whether a name is new, and notes it.
    pub(crate) fn is_new(&mut self, name: &'static str) -> bool {
        let is_new = !self.names.contains(&name);
        if is_new {
            self.names.push(name);
        }
        is_new
    }

    pub(crate) fn write_enum(&mut self, name: &str, variants: &[(&str, i32)]) {
        let variants: Vec<String> = variants.iter().map(|(name, number)| format!("{name} = {number}")).collect();
        let _ = writeln!(self.text, "enum struct {name} : int {{ {} }};", variants.join(", "));
    }

    /// Writes a structure. The assertions let the compiler prove that its layout is Rust's: members have equal sizes and the
    /// same order, and in Rust there are no gaps between them, so there is no room for any here. (Not all compilers know
    /// `offsetof`.)
    pub(crate) fn write_struct(&mut self, name: &str, size: usize, members: &[Member]) {
        let text = &mut self.text;
        let _ = writeln!(text, "struct {name} {{");
        members.iter().for_each(|member| text.extend(["    ", &member.declaration, ";\n"]));
        let _ = writeln!(text, "}};\nstatic_assert(sizeof({name}) == {size}, \"as in Rust\");");
        for Member { name: member, size, .. } in members {
            let _ = writeln!(text, "static_assert(sizeof({name}::{member}) == {size}, \"as in Rust\");");
        }
    }

    /// Writes a line as it is.
    pub(crate) fn write_line(&mut self, line: &str) {
        let _ = writeln!(self.text, "{line}");
    }
}

/// A member of a structure: how it is declared, what it is called and how many bytes it has.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) declaration: String,
    pub(crate) name: &'static str,
    pub(crate) size: usize,
}

impl Member {
    pub(crate) fn new<T: CudaValue>(name: &'static str) -> Self {
        Self { declaration: T::variable(name), name, size: size_of::<T>() }
    }
}

/// A value that has the same bytes in Rust and in CUDA C.
pub(crate) trait CudaValue: Copy {
    /// Returns the declaration of a variable: `float name`.
    fn variable(name: &str) -> String;

    /// Declares the type, where CUDA C does not know it by itself.
    fn declare(_into: &mut Declarations) {}
}

macro_rules! numbers {
    ($($rust:ty => $cuda:literal)*) => {$(
        impl CudaValue for $rust {
            fn variable(name: &str) -> String {
                format!(concat!($cuda, " {}"), name)
            }
        }
    )*};
}

// A byte of memory of any type is a `char`, as C has it.
numbers! {
    u8 => "char"
    i32 => "int"
    i64 => "i64"
    u64 => "u64"
    f32 => "float"
}

impl<T: CudaValue, const N: usize> CudaValue for [T; N] {
    fn variable(name: &str) -> String {
        T::variable(&format!("{name}[{N}]"))
    }

    fn declare(into: &mut Declarations) {
        T::declare(into);
    }
}

/// An address in the memory of the GPU, of values of a type. Null where there is none.
#[repr(transparent)]
#[derive(Debug)]
pub(crate) struct DevicePointer<T>(u64, PhantomData<fn(T)>);

impl<T> DevicePointer<T> {
    pub(crate) const NULL: Self = Self::new(0);

    pub(crate) const fn new(address: u64) -> Self {
        Self(address, PhantomData)
    }
}

impl<T> Clone for DevicePointer<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for DevicePointer<T> {}

impl<T: CudaValue> CudaValue for DevicePointer<T> {
    fn variable(name: &str) -> String {
        T::variable(&format!("*{name}"))
    }

    fn declare(into: &mut Declarations) {
        T::declare(into);
    }
}

/// A `bool` in the four bytes of a number, so that structures have no gaps.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Flag(i32);

impl From<bool> for Flag {
    fn from(is_so: bool) -> Self {
        Self(i32::from(is_so))
    }
}

impl CudaValue for Flag {
    fn variable(name: &str) -> String {
        i32::variable(name)
    }
}

/// Defines an enum whose variants have the same names and numbers in CUDA C.
macro_rules! cuda_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$note:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[repr(i32)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum $name { $($(#[$note])* $variant,)* }

        impl $crate::cuda_c::CudaValue for $name {
            fn variable(name: &str) -> String {
                format!("{} {name}", stringify!($name))
            }

            fn declare(into: &mut $crate::cuda_c::Declarations) {
                if into.is_new(stringify!($name)) {
                    into.write_enum(stringify!($name), &[$((stringify!($variant), Self::$variant as i32)),*]);
                }
            }
        }
    };
}

/// Defines a structure whose members have the same names, types and places in CUDA C. `behind` another, CUDA C has that as
/// its first member, `asserts`.
macro_rules! cuda_struct {
    (
        $(#[$doc:meta])*
        $name:ident $(behind $header:ident)? { $($(#[$note:meta])* $member:ident: $type:ty,)* }
    ) => {
        $(#[$doc])*
        #[repr(C)]
        #[derive(Clone, Copy, Debug)]
        pub(crate) struct $name { $($(#[$note])* pub(crate) $member: $type,)* }

        // Nothing but its end may be padding.
        const _: () = assert!(
            (0 $(+ size_of::<$type>())*).next_multiple_of(align_of::<$name>()) == size_of::<$name>(),
            concat!(stringify!($name), " has gaps between its members"),
        );

        impl $crate::cuda_c::CudaValue for $name {
            fn variable(name: &str) -> String {
                format!("{} {name}", stringify!($name))
            }

            fn declare(into: &mut $crate::cuda_c::Declarations) {
                use $crate::cuda_c::Member;
                if into.is_new(stringify!($name)) {
                    $(into.add::<$header>();)?
                    $(into.add::<$type>();)*
                    let before = 0 $(+ size_of::<$header>())?;
                    let members = [
                        $(Member::new::<$header>("asserts"),)?
                        $(Member::new::<$type>(stringify!($member)),)*
                    ];
                    into.write_struct(stringify!($name), before + size_of::<Self>(), &members);
                }
            }
        }
    };
}

pub(crate) use {cuda_enum, cuda_struct};

#[cfg(test)]
mod tests {
    use super::*;

    cuda_enum! {
        Color { Red, Green, }
    }

    cuda_struct! {
        Inner { x: f32, color: Color, }
    }

    cuda_struct! {
        Outer behind Inner { steps: [[i64; 8]; 3], data: [DevicePointer<u8>; 2], inner: DevicePointer<Inner>, is_last: Flag, }
    }

    #[test]
    fn a_declaration_brings_what_it_needs_and_has_the_sizes_of_rust() {
        let mut declarations = Declarations::default();
        declarations.add::<Outer>();
        let text = declarations.take();
        let wanted = "\
enum struct Color : int { Red = 0, Green = 1 };
struct Inner {
    float x;
    Color color;
};
static_assert(sizeof(Inner) == 8, \"as in Rust\");
static_assert(sizeof(Inner::x) == 4, \"as in Rust\");
static_assert(sizeof(Inner::color) == 4, \"as in Rust\");
struct Outer {
    Inner asserts;
    i64 steps[3][8];
    char *data[2];
    Inner *inner;
    int is_last;
};
static_assert(sizeof(Outer) == 232, \"as in Rust\");
static_assert(sizeof(Outer::asserts) == 8, \"as in Rust\");
static_assert(sizeof(Outer::steps) == 192, \"as in Rust\");
static_assert(sizeof(Outer::data) == 16, \"as in Rust\");
static_assert(sizeof(Outer::inner) == 8, \"as in Rust\");
static_assert(sizeof(Outer::is_last) == 4, \"as in Rust\");
";
        assert_eq!(text, wanted);
        declarations.add::<Inner>();
        assert_eq!(declarations.take(), "", "there is one declaration of each");
    }
}
