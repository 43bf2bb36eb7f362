//! Every operation steeve knows: one entry in one place.
//!
//! An entry has ggml's name, the rule that says what the result looks like, the names of its operands, whether ggml runs it in place, and which
//! sources its result may take the place of. What is not in the table keeps its name, has no rule and overwrites
//! nothing.

use core::fmt;

use steeve_plan::Bytes;

use crate::call::{Directions, Gated, ReadCall, SwigluOai};
use crate::shape::{ShapeRule, attention, elementwise, image, matrix, reduce, rows, view};
use crate::tile::row_rules::{self as by_row, RowRule};
use crate::{
    Convolution, DataType, FlashAttention, Interpolation, Layout, Pool, Rope, SoftMax, SortOrder, TensorId, Window,
};

steeve_plan::id_type! {
    /// A name that is not in the tables here, kept by the [`Tensors`](crate::Tensors) it came with.
    pub struct OtherName;
}

/// What the table says about an operation.
pub(crate) struct OpEntry {
    pub(crate) name: &'static str,
    pub(crate) rule: Option<ShapeRule>,
    /// Gives sources and parameters their names.
    pub(crate) read: Option<ReadCall>,
    /// The source whose memory the result is a view of, as for views and cache writes.
    pub(crate) view_of: Option<usize>,
    /// Along which dimensions it is row-wise; none at all without a rule.
    pub(crate) rows: Option<RowRule>,
    ggml_in_place: bool,
    /// One bit per source slot.
    overwrites: u16,
    writes: bool,
}

const fn entry(name: &'static str) -> OpEntry {
    OpEntry {
        name,
        rule: None,
        read: None,
        view_of: None,
        rows: None,
        ggml_in_place: false,
        overwrites: 0,
        writes: true,
    }
}

impl OpEntry {
    const fn rule(mut self, rule: ShapeRule) -> Self {
        self.rule = Some(rule);
        self
    }

    const fn call(mut self, read: ReadCall) -> Self {
        self.read = Some(read);
        self
    }

    const fn view_of(mut self, slot: usize) -> Self {
        self.view_of = Some(slot);
        self
    }

    const fn rows(mut self, rows: RowRule) -> Self {
        self.rows = Some(rows);
        self
    }

    const fn ggml_in_place(mut self) -> Self {
        self.ggml_in_place = true;
        self
    }

    const fn overwrites(mut self, slot: usize) -> Self {
        self.overwrites |= 1 << slot;
        self
    }

    const fn writes_nothing(mut self) -> Self {
        self.writes = false;
        self
    }
}

/// From the table: [`Op`], and [`OpCall`] with the reader of each operation. Operands are named in the order of their slots,
/// those that a node may lack last; parameters are read by the functions of [`NodeReader`](crate::call::NodeReader).
macro_rules! operations {
    ($(
        $(#[$doc:meta])*
        $variant:ident
            $([$($operand:ident),*])?
            $(optional [$($maybe:ident),*])?
            $(with ($($param:ident: $type:ty = $read:ident($($argument:expr),*)),* $(,)?))?
            => $entry:expr;
    )*) => {
        /// What makes a tensor.
        ///
        /// ```
        /// use steeve_graph::{DataType, Layout, Op, Unary};
        /// let x = Layout::contiguous(DataType::F32, &[8, 4])?;
        /// let row = Layout::contiguous(DataType::F32, &[8])?;
        /// // A sum may take the place of a summand, but not of one that is added to every row.
        /// assert!(Op::Add.may_overwrite(0, &[Some(&x), Some(&row)], &x));
        /// assert!(!Op::Add.may_overwrite(1, &[Some(&x), Some(&row)], &x));
        /// assert!(Op::Unary(Unary::Silu).ggml_in_place());
        /// # Ok::<(), steeve_graph::LayoutError>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Op {
            $($(#[$doc])* $variant,)*
            /// An elementwise function of one source.
            Unary(Unary),
            /// A gated linear unit: of two sources, or of the halves of the rows of one.
            Glu(Glu),
            /// An operation that is not in the table: of a recorded graph, of a graph in text, or of the caller's.
            Other(OtherName),
        }

        /// An operation with its operands and parameters. Shapes fit together, and parameters are in their range.
        ///
        /// Made by [`Graph::call`](crate::Graph::call). Operands that a node may lack are options.
        ///
        /// ```
        /// use steeve_graph::{Graph, OpCall};
        /// let graph: Graph = "x = input f32[4,2]; y = scale(0.5, 1.0) x".parse()?;
        /// let [x, y] = [graph.leafs()[0], graph.nodes()[0]];
        /// assert_eq!(graph.call(y)?, OpCall::Scale { a: x, factor: 0.5, bias: 1.0 });
        /// # Ok::<(), Box<dyn std::error::Error>>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq)]
        #[non_exhaustive]
        #[allow(missing_docs, reason = "fields are named as the operands and parameters of the builders")]
        pub enum OpCall {
            $(
                $(#[$doc])*
                $variant { $($($operand: TensorId,)*)? $($($maybe: Option<TensorId>,)*)? $($($param: $type,)*)? },
            )*
            /// An elementwise function without parameters.
            Unary { kind: Unary, a: TensorId },
            /// The trainable activation, with the numbers that [`Context::xielu`](crate::Context::xielu) takes.
            Xielu { a: TensorId, numbers: [f32; 4] },
            /// A gated linear unit.
            Glu { kind: Glu, gated: Gated, swiglu: SwigluOai },
        }

        impl Op {
            /// The operations without a kind, in the order of the table.
            pub const PLAIN: &[Self] = &[$(Self::$variant),*];

            pub(crate) const fn entry(self) -> &'static OpEntry {
                match self {
                    $(Self::$variant => {
                        const ENTRY: &OpEntry = &$entry.call(|node| {
                            let _ = &node;
                            Ok(OpCall::$variant {
                                $($($operand: node.operand()?,)*)?
                                $($($maybe: node.optional_operand(),)*)?
                                $($($param: node.$read($($argument),*)?,)*)?
                            })
                        });
                        ENTRY
                    })*
                    Self::Unary(_) => UNARY,
                    Self::Glu(_) => GLU,
                    Self::Other(_) => OTHER,
                }
            }
        }
    };
}

// Elementwise: element i of the result depends on element i of the source and on nothing else of it, so a kernel may
// write i as soon as it has read i. That is safe for equal layouts in any order of elements and with any number of
// threads.
const UNARY: &OpEntry =
    &entry("UNARY").rule(elementwise::unary).rows(by_row::same).call(|node| node.unary()).ggml_in_place().overwrites(0);

// With two sources a GLU is elementwise in both; ggml just does not list it. With one source the result is half as
// wide, which the demand for equal layouts excludes.
const GLU: &OpEntry =
    &entry("GLU").rule(elementwise::glu).rows(by_row::glu).call(|node| node.glu()).overwrites(0).overwrites(1);

const OTHER: &OpEntry = &entry("");

operations! {
    /// No operation: a leaf, or a plain view.
    None => entry("NONE").writes_nothing();
    /// A copy. Never in place: copying bytes onto themselves with `memcpy` is undefined in C, and ggml does not.
    Dup [a] => entry("DUP").rule(elementwise::same).rows(by_row::same);
    /// `a + b`, where `b` may be repeated. Elementwise in `a`, and in `b` when it is not repeated, which equal layouts
    /// say.
    Add [a, b] => entry("ADD").rule(elementwise::broadcast).rows(by_row::broadcast).ggml_in_place().overwrites(0).overwrites(1);
    /// Adds to each row of `a` the row of `b` that `ids` names. Elementwise in `a`; rows of `b` are read in any order
    /// and more than once, so even an equal layout does not make it safe.
    AddId [a, b, ids] => entry("ADD_ID").rule(elementwise::add_id).rows(by_row::add_id).ggml_in_place().overwrites(0);
    /// Adds one number to all elements. That number is read for each of them, so it stays.
    Add1 [a, b] => entry("ADD1").rule(elementwise::add1).rows(by_row::with_number).ggml_in_place().overwrites(0);
    /// `a - b`, as [`Add`](Self::Add).
    Sub [a, b] => entry("SUB").rule(elementwise::broadcast).rows(by_row::broadcast).ggml_in_place().overwrites(0).overwrites(1);
    /// `a * b`, as [`Add`](Self::Add).
    Mul [a, b] => entry("MUL").rule(elementwise::broadcast).rows(by_row::broadcast).ggml_in_place().overwrites(0).overwrites(1);
    /// `a / b`, as [`Add`](Self::Add).
    Div [a, b] => entry("DIV").rule(elementwise::broadcast).rows(by_row::broadcast).ggml_in_place().overwrites(0).overwrites(1);
    /// The square.
    Sqr [a] => entry("SQR").rule(elementwise::same).rows(by_row::same).ggml_in_place().overwrites(0);
    /// The square root.
    Sqrt [a] => entry("SQRT").rule(elementwise::same).rows(by_row::same).ggml_in_place().overwrites(0);
    /// The natural logarithm.
    Log [a] => entry("LOG").rule(elementwise::same).rows(by_row::same).ggml_in_place().overwrites(0);
    /// The sum of all elements. Never in place: one element of the result needs all of the source.
    Sum [a] => entry("SUM").rule(reduce::sum);
    /// The sum of each row.
    SumRows [a] => entry("SUM_ROWS").rule(reduce::sum_rows).rows(by_row::per_row);
    /// The mean of each row.
    Mean [a] => entry("MEAN").rule(reduce::mean).rows(by_row::per_row);
    /// Repeats a tensor to fill a larger shape. Never in place: an element is read again for each repetition.
    Repeat [a] => entry("REPEAT").rule(rows::repeat).rows(by_row::repeat);
    /// Joins two tensors along one dimension.
    Concat [a, b] with (dim: usize = count(0, "dim")) => entry("CONCAT").rule(rows::concat).rows(by_row::concat);
    /// The gradient of silu, from the gradient of its result and its source. Elementwise in both.
    SiluBack [gradient, a] => entry("SILU_BACK").rule(elementwise::same_pair).rows(by_row::same).ggml_in_place().overwrites(0).overwrites(1);
    /// Subtracts the mean and divides by the deviation, row by row. A row's numbers are known before any of it is
    /// written, and the last pass is elementwise (ggml builds such a node in place too, on request).
    Norm [a] with (epsilon: f32 = float(0, "epsilon")) => entry("NORM").rule(elementwise::same).rows(by_row::of_rows).overwrites(0);
    /// Divides each row by its root mean square. Safe as [`Norm`](Self::Norm).
    RmsNorm [a] with (
        epsilon: f32 = float(0, "epsilon"),
    ) => entry("RMS_NORM").rule(elementwise::same).rows(by_row::of_rows).ggml_in_place().overwrites(0);
    /// The gradient of rms_norm, from the gradient of its result (slot 0) and its source (slot 1). ggml's kernel
    /// first copies slot 1 into the result and adds slot 0 afterwards: the result may be written over slot 1, while
    /// slot 0 would be lost before it is added.
    RmsNormBack [gradient, a] with (
        epsilon: f32 = float(0, "epsilon"),
    ) => entry("RMS_NORM_BACK").rule(elementwise::same_pair).rows(by_row::of_rows).ggml_in_place().overwrites(1);
    /// [`Norm`](Self::Norm) over groups of channels. A group reads nothing but itself, and all of it before the last,
    /// elementwise pass.
    GroupNorm [a] with (
        groups: u32 = groups(),
        epsilon: f32 = float(1, "epsilon"),
    ) => entry("GROUP_NORM").rule(elementwise::same).rows(by_row::of_cubes).overwrites(0);
    /// Divides each row by its length. Safe as [`Norm`](Self::Norm).
    L2Norm [a] with (epsilon: f32 = float(0, "epsilon")) => entry("L2_NORM").rule(elementwise::same).rows(by_row::of_rows).overwrites(0);
    /// The matrix product, with the rows of `a` as columns. Never in place: an element needs a whole row of each.
    MulMat [a, b] => entry("MUL_MAT").rule(matrix::mul_mat).rows(by_row::mul_mat);
    /// The matrix product with the experts that `ids` names.
    MulMatId [experts, b, ids] => entry("MUL_MAT_ID").rule(matrix::mul_mat_id).rows(by_row::mul_mat_id);
    /// Multiplies by a number and adds one.
    Scale [a] with (
        factor: f32 = float(0, "factor"),
        bias: f32 = float_or(1, 0.0),
    ) => entry("SCALE").rule(elementwise::scale).rows(by_row::same).ggml_in_place().overwrites(0);
    /// Copies `a` into the memory of `b`. Its result is a view already; a cast that owns its result changes the type.
    Cpy [a, b] => entry("CPY").rule(view::cpy).rows(by_row::cpy).view_of(1);
    /// A copy without gaps. Never in place, as [`Dup`](Self::Dup): otherwise it reorders elements.
    Cont [a] => entry("CONT").rule(elementwise::cont).rows(by_row::in_order);
    /// A view of all elements in another shape.
    Reshape [a] => entry("RESHAPE").rule(view::reshape).view_of(0).writes_nothing();
    /// A part of a tensor.
    View [a] with (offset: Bytes = offset()) => entry("VIEW").rule(view::view).view_of(0).writes_nothing();
    /// The dimensions in another order.
    Permute [a] with (axes: [usize; 4] = axes()) => entry("PERMUTE").rule(view::permute).view_of(0).writes_nothing();
    /// The first two dimensions exchanged.
    Transpose [a] => entry("TRANSPOSE").rule(view::transpose).view_of(0).writes_nothing();
    /// The rows that `ids` names. Never in place: rows are read in any order, and more than once.
    GetRows [a, ids] => entry("GET_ROWS").rule(rows::get_rows).rows(by_row::get_rows);
    /// Writes rows into a tensor, at the places that `ids` names. Its result is a view of that tensor.
    SetRows [rows, ids, target] => entry("SET_ROWS").rule(rows::set_rows).view_of(2);
    /// Minus infinity above the diagonal.
    DiagMaskInf [a] with (
        past: u32 = count(0, "past"),
    ) => entry("DIAG_MASK_INF").rule(elementwise::same).rows(by_row::of_planes).ggml_in_place().overwrites(0);
    /// Zero above the diagonal.
    DiagMaskZero [a] with (
        past: u32 = count(0, "past"),
    ) => entry("DIAG_MASK_ZERO").rule(elementwise::same).rows(by_row::of_planes).ggml_in_place().overwrites(0);
    /// Soft-max of each row, after a scale and a mask. A row is read in full before its last, elementwise pass; the
    /// mask is not overwritten, because the same row of it serves many heads.
    SoftMax [a] optional [mask, sinks] with (
        soft_max: SoftMax = soft_max(),
    ) => entry("SOFT_MAX").rule(attention::soft_max).rows(by_row::soft_max).ggml_in_place().overwrites(0);
    /// The gradient of soft_max, from the gradient of its result (slot 0) and its result (slot 1). ggml's kernel
    /// copies slot 0 into the result and multiplies by slot 1 afterwards: the result may be written over slot 0 only.
    SoftMaxBack [gradient, result] with (
        soft_max: SoftMax = soft_max_back(),
    ) => entry("SOFT_MAX_BACK").rule(elementwise::same_pair).rows(by_row::of_rows).ggml_in_place().overwrites(0);
    /// Rotates pairs of elements by their position. A pair is read before it is written, and no other element needs
    /// it; positions and frequencies are read for every row.
    Rope [a, positions] optional [factors] with (
        rope: Rope = rope(),
    ) => entry("ROPE").rule(attention::rope).rows(by_row::rope).ggml_in_place().overwrites(0);
    /// The gradient of rope, which rotates back.
    RopeBack [a, positions] optional [factors] with (
        rope: Rope = rope(),
    ) => entry("ROPE_BACK").rule(attention::rope).rows(by_row::rope).ggml_in_place().overwrites(0);
    /// Limits each element from below and above. Elementwise; ggml lists it since the versions after 0.21.
    Clamp [a] with (
        min: f32 = float(0, "min"),
        max: f32 = float(1, "max"),
    ) => entry("CLAMP").rule(elementwise::same).rows(by_row::same).overwrites(0);
    /// Multiplies negative elements by a slope. Elementwise.
    LeakyRelu [a] with (slope: f32 = float(0, "slope")) => entry("LEAKY_RELU").rule(elementwise::same).rows(by_row::same).overwrites(0);
    /// Copies the patches of an image under a convolution kernel, so that a matrix product convolves.
    Im2col [kernel, image] with (
        convolution: Convolution = convolution(),
        directions: Directions = directions(),
        dtype: DataType = dtype(7),
    ) => entry("IM2COL").rule(image::im2col).rows(by_row::im2col);
    /// The maximum or mean of each window of a row.
    Pool1d [a] with (
        pool: Pool = pool(),
        size: u32 = count(1, "size"),
        stride: u32 = count(2, "stride"),
        padding: u32 = count(3, "padding"),
    ) => entry("POOL_1D").rule(image::pool_1d).rows(by_row::per_row);
    /// The maximum or mean of each window of a plane.
    Pool2d [a] with (pool: Pool = pool(), window: Window = window()) => entry("POOL_2D").rule(image::pool_2d).rows(by_row::of_planes);
    /// A larger image, interpolated.
    Upscale [a] with (interpolation: Interpolation = interpolation()) => entry("UPSCALE").rule(image::upscale).rows(by_row::of_cubes);
    /// Zeros around a tensor.
    Pad [a] with (before: [u32; 4] = padding(0), behind: [u32; 4] = padding(1)) => entry("PAD").rule(image::pad);
    /// The order that sorts each row. Never in place: the type differs.
    Argsort [a] with (order: SortOrder = order()) => entry("ARGSORT").rule(reduce::argsort).rows(by_row::of_rows);
    /// The positions of the largest elements of each row.
    TopK [a] with (k: u64 = count(0, "k")) => entry("TOP_K").rule(reduce::top_k).rows(by_row::per_row);
    /// One number everywhere. The source gives the shape and is not read.
    Fill optional [like] with (
        value: f32 = float(0, "value"),
    ) => entry("FILL").rule(elementwise::fill).rows(by_row::fill).ggml_in_place().overwrites(0);
    /// Attention in one step. Never in place: each row of the result needs all keys and values, and `q` has another
    /// order of dimensions.
    FlashAttnExt [q, k, v] optional [mask, sinks] with (
        attention: FlashAttention = attention(),
    ) => entry("FLASH_ATTN_EXT").rule(attention::flash_attn_ext).rows(by_row::flash_attn_ext);
    /// ggml's `CUSTOM`, a function in C: what it reads when is not known. Callers' own operations are `Op::Other`.
    Custom => entry("CUSTOM").rule(view::custom);
}

impl Op {
    /// Returns ggml's name of the operation. One that is not in the table has an empty name here and its own in
    /// [`Tensors::op_name`](crate::Tensors::op_name).
    pub const fn name(self) -> &'static str {
        self.entry().name
    }

    /// Returns whether the planner of ggml 0.21 lets its result be written over a source.
    pub const fn ggml_in_place(self) -> bool {
        self.entry().ggml_in_place
    }

    /// Returns whether it only describes memory, so that running it does nothing: `NONE`, `VIEW`, `RESHAPE`,
    /// `PERMUTE` and `TRANSPOSE`.
    pub const fn writes_nothing(self) -> bool {
        !self.entry().writes
    }

    /// Returns whether `result` may be written over the source in `slot` while the operation reads its sources.
    ///
    /// That is right if no other slot touches that root, which the caller has to check. It always demands equal
    /// types, shapes and strides.
    pub fn may_overwrite(self, slot: usize, sources: &[Option<&Layout>], result: &Layout) -> bool {
        self.overwrites_slot(slot) && sources.get(slot).copied().flatten() == Some(result)
    }

    /// Returns the part of [`may_overwrite`](Self::may_overwrite) that does not need the layouts.
    pub const fn overwrites_slot(self, slot: usize) -> bool {
        slot < 16 && self.entry().overwrites >> slot & 1 == 1
    }

    /// Returns the source that it writes into, as `CPY` and `SET_ROWS` do, unless its result owns its memory. Kernels
    /// do not read that source.
    pub const fn writes_into(self) -> Option<usize> {
        if self.entry().writes { self.entry().view_of } else { None }
    }

    /// Returns whether it may overwrite the source in some slot.
    pub(crate) const fn overwrites_any_slot(self) -> bool {
        self.entry().overwrites != 0
    }

    /// Returns the plain operation with ggml's name, in upper case; `UNARY` and `GLU` have kinds and are not among
    /// them.
    pub fn plain(name: &str) -> Option<Self> {
        Self::PLAIN.iter().copied().find(|op| op.name() == name)
    }
}

macro_rules! kinds {
    ($(#[$doc:meta])* $name:ident { $($variant:ident $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $variant,)*
            /// A kind of a recorded graph that is not in the list.
            Other(OtherName),
        }

        impl $name {
            /// Every kind in the list.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns ggml's name of the kind; empty for one that is not in the list.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)* Self::Other(_) => "" }
            }

            /// Returns the kind with ggml's name, in upper case.
            pub fn from_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|kind| kind.name() == name)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(self.name())
            }
        }
    };
}

kinds! {
    /// The elementwise functions that share the operation `UNARY`.
    Unary {
        Abs "ABS", Sgn "SGN", Neg "NEG", Step "STEP", Tanh "TANH", Elu "ELU", Relu "RELU", Sigmoid "SIGMOID",
        Gelu "GELU", GeluQuick "GELU_QUICK", Silu "SILU", Hardswish "HARDSWISH", Hardsigmoid "HARDSIGMOID",
        Exp "EXP", Expm1 "EXPM1", Softplus "SOFTPLUS", GeluErf "GELU_ERF", Xielu "XIELU", Floor "FLOOR",
        Ceil "CEIL", Round "ROUND", Trunc "TRUNC",
    }
}

kinds! {
    /// The gated linear units that share the operation `GLU`.
    Glu {
        Reglu "REGLU", Geglu "GEGLU", Swiglu "SWIGLU", SwigluOai "SWIGLU_OAI", GegluErf "GEGLU_ERF",
        GegluQuick "GEGLU_QUICK",
    }
}

#[cfg(test)]
mod tests {
    use alloc::format;
    use alloc::string::String;
    use alloc::vec::Vec;

    use super::*;

    /// One line per operation: what ggml does in place, what we overwrite, whose memory the result is a view of,
    /// whether it writes.
    const TABLE: &str = "\
NONE            writes nothing
DUP
ADD             ggml in place, overwrites 0 1
ADD_ID          ggml in place, overwrites 0
ADD1            ggml in place, overwrites 0
SUB             ggml in place, overwrites 0 1
MUL             ggml in place, overwrites 0 1
DIV             ggml in place, overwrites 0 1
SQR             ggml in place, overwrites 0
SQRT            ggml in place, overwrites 0
LOG             ggml in place, overwrites 0
SUM
SUM_ROWS
MEAN
REPEAT
CONCAT
SILU_BACK       ggml in place, overwrites 0 1
NORM            overwrites 0
RMS_NORM        ggml in place, overwrites 0
RMS_NORM_BACK   ggml in place, overwrites 1
GROUP_NORM      overwrites 0
L2_NORM         overwrites 0
MUL_MAT
MUL_MAT_ID
SCALE           ggml in place, overwrites 0
CPY             view of 1, writes into 1
CONT
RESHAPE         view of 0, writes nothing
VIEW            view of 0, writes nothing
PERMUTE         view of 0, writes nothing
TRANSPOSE       view of 0, writes nothing
GET_ROWS
SET_ROWS        view of 2, writes into 2
DIAG_MASK_INF   ggml in place, overwrites 0
DIAG_MASK_ZERO  ggml in place, overwrites 0
SOFT_MAX        ggml in place, overwrites 0
SOFT_MAX_BACK   ggml in place, overwrites 0
ROPE            ggml in place, overwrites 0
ROPE_BACK       ggml in place, overwrites 0
CLAMP           overwrites 0
LEAKY_RELU      overwrites 0
IM2COL
POOL_1D
POOL_2D
UPSCALE
PAD
ARGSORT
TOP_K
FILL            ggml in place, overwrites 0
FLASH_ATTN_EXT
CUSTOM
UNARY           ggml in place, overwrites 0
GLU             overwrites 0 1
";

    fn line(op: Op) -> String {
        let mut facts = Vec::new();
        if op.ggml_in_place() {
            facts.push(String::from("ggml in place"));
        }
        let slots: String = (0..16).filter(|&s| op.overwrites_slot(s)).map(|s| format!(" {s}")).collect();
        if !slots.is_empty() {
            facts.push(format!("overwrites{slots}"));
        }
        if let Some(slot) = op.entry().view_of {
            facts.push(format!("view of {slot}"));
        }
        if let Some(slot) = op.writes_into() {
            facts.push(format!("writes into {slot}"));
        }
        if op.writes_nothing() {
            facts.push(String::from("writes nothing"));
        }
        format!("{:16}{}", op.name(), facts.join(", ")).trim_end().into()
    }

    #[test]
    fn the_table_says_what_it_said() {
        let kinds = [Op::Unary(Unary::Neg), Op::Glu(Glu::Swiglu)];
        let table: String = Op::PLAIN.iter().copied().chain(kinds).map(|op| line(op) + "\n").collect();
        assert_eq!(table, TABLE, "\n{table}");
    }

    #[test]
    fn every_operation_of_the_table_has_a_call() {
        let kinds = [Op::Unary(Unary::Neg), Op::Glu(Glu::Swiglu)];
        for op in Op::PLAIN.iter().copied().chain(kinds) {
            assert!(op.entry().read.is_some(), "{}", op.name());
        }
    }

    #[test]
    fn names_lead_back_to_their_operation() {
        for &op in Op::PLAIN {
            assert_eq!(Op::plain(op.name()), Some(op));
        }
        for &kind in Unary::ALL {
            assert_eq!(Unary::from_name(kind.name()), Some(kind));
        }
        for &kind in Glu::ALL {
            assert_eq!(Glu::from_name(kind.name()), Some(kind));
        }
        assert_eq!((Op::plain("UNARY"), Op::plain("add")), (None, None));
    }

    #[test]
    fn a_broadcast_source_is_never_overwritten() {
        let layout = |shape: &[u64]| Layout::contiguous(DataType::F32, shape).unwrap();
        let (full, row) = (layout(&[8, 4]), layout(&[8]));
        for op in [Op::Add, Op::Sub, Op::Mul, Op::Div] {
            assert!(op.may_overwrite(0, &[Some(&full), Some(&row)], &full));
            assert!(!op.may_overwrite(1, &[Some(&full), Some(&row)], &full));
            assert!(op.may_overwrite(1, &[Some(&full), Some(&full)], &full));
            assert!(!op.may_overwrite(2, &[Some(&full), Some(&full)], &full));
        }
    }

    #[test]
    fn unknown_operations_overwrite_nothing() {
        let layout = Layout::contiguous(DataType::F32, &[8]).unwrap();
        let op = Op::Other(steeve_plan::Id::from_index(0).unwrap());
        assert!((0..20).all(|slot| !op.may_overwrite(slot, &[Some(&layout); 20], &layout)));
        assert!(!op.ggml_in_place() && !op.writes_nothing());
    }
}
