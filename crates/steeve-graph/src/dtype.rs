//! The types of data that ggml knows, so that every size is exact.
//!
//! A quantised type packs a *block* of elements into a fixed number of bytes; a plain type is a block of one.

use core::fmt;
use core::str::FromStr;

macro_rules! data_types {
    ($($variant:ident $name:literal $ggml:literal $block:literal $bytes:literal;)*) => {
        /// What one element of a tensor is.
        ///
        /// ```
        /// use steeve_graph::DataType;
        /// let q4_k: DataType = "q4_K".parse()?;
        /// assert_eq!((q4_k.block_len(), q4_k.block_bytes()), (256, 144));
        /// assert!("q4_k_m".parse::<DataType>().is_err());
        /// # Ok::<(), steeve_graph::UnknownDataType>(())
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum DataType {
            $(
                #[doc = concat!("`", $name, "`: blocks of ", $block, " in ", $bytes, " bytes.")]
                $variant,
            )*
        }

        impl DataType {
            /// Every type, in ggml's order.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// Returns ggml's name of the type, as in recorded graphs.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }

            /// Returns how many elements one block has.
            pub const fn block_len(self) -> u64 {
                match self { $(Self::$variant => $block),* }
            }

            /// Returns how many bytes one block takes.
            pub const fn block_bytes(self) -> u64 {
                match self { $(Self::$variant => $bytes),* }
            }

            /// Returns ggml's number of the type.
            pub const fn ggml_id(self) -> u32 {
                match self { $(Self::$variant => $ggml),* }
            }

            /// Returns the type with ggml's number `id`; `None` for numbers that ggml retired or has not given yet.
            pub const fn from_ggml_id(id: u32) -> Option<Self> {
                match id { $($ggml => Some(Self::$variant),)* _ => None }
            }
        }

        impl FromStr for DataType {
            type Err = UnknownDataType;

            fn from_str(name: &str) -> Result<Self, UnknownDataType> {
                match name { $($name => Ok(Self::$variant),)* _ => Err(UnknownDataType) }
            }
        }
    };
}

//  variant  name       ggml's number, elements and bytes of a block
data_types! {
    F32     "f32"       0   1   4;
    F16     "f16"       1   1   2;
    Q4_0    "q4_0"      2   32  18;
    Q4_1    "q4_1"      3   32  20;
    Q5_0    "q5_0"      6   32  22;
    Q5_1    "q5_1"      7   32  24;
    Q8_0    "q8_0"      8   32  34;
    Q8_1    "q8_1"      9   32  36;
    Q2K     "q2_K"      10  256 84;
    Q3K     "q3_K"      11  256 110;
    Q4K     "q4_K"      12  256 144;
    Q5K     "q5_K"      13  256 176;
    Q6K     "q6_K"      14  256 210;
    Q8K     "q8_K"      15  256 292;
    Iq2Xxs  "iq2_xxs"   16  256 66;
    Iq2Xs   "iq2_xs"    17  256 74;
    Iq3Xxs  "iq3_xxs"   18  256 98;
    Iq1S    "iq1_s"     19  256 50;
    Iq4Nl   "iq4_nl"    20  32  18;
    Iq3S    "iq3_s"     21  256 110;
    Iq2S    "iq2_s"     22  256 82;
    Iq4Xs   "iq4_xs"    23  256 136;
    I8      "i8"        24  1   1;
    I16     "i16"       25  1   2;
    I32     "i32"       26  1   4;
    I64     "i64"       27  1   8;
    F64     "f64"       28  1   8;
    Iq1M    "iq1_m"     29  256 56;
    Bf16    "bf16"      30  1   2;
    Tq1_0   "tq1_0"     34  256 54;
    Tq2_0   "tq2_0"     35  256 66;
    Mxfp4   "mxfp4"     39  32  17;
    Nvfp4   "nvfp4"     40  64  36;
    Q1_0    "q1_0"      41  128 18;
    Q2_0    "q2_0"      42  64  18;
}

impl DataType {
    /// Returns whether it is one of the types that kernels compute with: `f32`, `f16` or `bf16`. `f64` is only
    /// stored.
    pub const fn is_float(self) -> bool {
        matches!(self, Self::F32 | Self::F16 | Self::Bf16)
    }

    /// Returns whether elements are whole numbers: `i8`, `i16`, `i32` or `i64`.
    pub const fn is_integer(self) -> bool {
        matches!(self, Self::I8 | Self::I16 | Self::I32 | Self::I64)
    }

    /// Returns whether elements share blocks, with a scale or more. A type that is not quantised is a plain number.
    pub const fn is_quantised(self) -> bool {
        self.block_len() > 1
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A name that no [`DataType`] has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("data type: unknown name: expected one of ggml's, such as f32, f16, i32, q8_0 or q4_K")]
pub struct UnknownDataType;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_lead_back_to_their_type() {
        for &dtype in DataType::ALL {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(DataType::from_ggml_id(dtype.ggml_id()), Some(dtype));
        }
        assert_eq!(DataType::from_ggml_id(4), None);
    }

    #[test]
    fn a_plain_type_is_a_block_of_one() {
        for name in ["f32", "f16", "bf16", "f64", "i8", "i16", "i32", "i64"] {
            assert_eq!(name.parse::<DataType>().map(DataType::block_len), Ok(1), "{name}");
        }
    }

    #[test]
    fn a_type_is_a_float_a_double_an_integer_or_quantised() {
        for &dtype in DataType::ALL {
            let kinds = [dtype.is_float(), dtype == DataType::F64, dtype.is_integer(), dtype.is_quantised()];
            assert_eq!(kinds.iter().filter(|is| **is).count(), 1, "{dtype}");
        }
    }
}
