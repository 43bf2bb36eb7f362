//! The types of elements, by their numbers in a file, with what they are called and the bytes they take.

use std::fmt;

/// The type of a tensor's elements, by its number in a file. Numbers without a name here have no size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataType(pub i32);

macro_rules! data_types {
    ($($name:ident = $number:literal, $text:literal, $bits:literal;)*) => {
        #[allow(missing_docs, reason = "each is the type of its name")]
        impl DataType {
            $(pub const $name: Self = Self($number);)*

            /// Returns the name and the bits of an element.
            const fn about(self) -> Option<(&'static str, u64)> {
                match self.0 {
                    $($number => Some(($text, $bits)),)*
                    _ => None,
                }
            }
        }
    };
}

data_types! {
    FLOAT = 1, "f32", 32;
    UINT8 = 2, "u8", 8;
    INT8 = 3, "i8", 8;
    UINT16 = 4, "u16", 16;
    INT16 = 5, "i16", 16;
    INT32 = 6, "i32", 32;
    INT64 = 7, "i64", 64;
    STRING = 8, "string", 128;
    BOOL = 9, "bool", 8;
    FLOAT16 = 10, "f16", 16;
    DOUBLE = 11, "f64", 64;
    UINT32 = 12, "u32", 32;
    UINT64 = 13, "u64", 64;
    COMPLEX64 = 14, "complex64", 64;
    COMPLEX128 = 15, "complex128", 128;
    BFLOAT16 = 16, "bf16", 16;
    FLOAT8E4M3FN = 17, "f8e4m3fn", 8;
    FLOAT8E4M3FNUZ = 18, "f8e4m3fnuz", 8;
    FLOAT8E5M2 = 19, "f8e5m2", 8;
    FLOAT8E5M2FNUZ = 20, "f8e5m2fnuz", 8;
    UINT4 = 21, "u4", 4;
    INT4 = 22, "i4", 4;
    FLOAT4E2M1 = 23, "f4e2m1", 4;
    FLOAT8E8M0 = 24, "f8e8m0", 8;
    UINT2 = 25, "u2", 2;
    INT2 = 26, "i2", 2;
}

impl DataType {
    /// The type of what nothing says the type of.
    pub const UNDEFINED: Self = Self(0);

    /// Returns whether anything says what type it is.
    pub const fn is_known(self) -> bool {
        self.0 != 0
    }

    /// Returns the bytes of so many elements, those below a byte packed; `None` if the type has no size or there are too many. Of a
    /// string, its place and its length are counted: 16 bytes.
    pub const fn bytes(self, elements: u64) -> Option<u64> {
        let Some((_, bits)) = self.about() else { return None };
        match bits {
            0..8 => Some(elements.div_ceil(8 / bits)),
            _ => elements.checked_mul(bits / 8),
        }
    }

    /// Returns whether elements are whole numbers or truth values that fit into 64 bits.
    pub(crate) const fn is_int(self) -> bool {
        matches!(
            self,
            Self::UINT8
                | Self::INT8
                | Self::UINT16
                | Self::INT16
                | Self::INT32
                | Self::INT64
                | Self::BOOL
                | Self::UINT32
                | Self::UINT64
        )
    }

    /// Returns whether elements are numbers of which arithmetic is done here.
    pub(crate) const fn is_float(self) -> bool {
        matches!(self, Self::FLOAT | Self::DOUBLE)
    }
}

impl fmt::Display for DataType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.about() {
            Some((name, _)) => f.write_str(name),
            None => write!(f, "type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::DataType;

    #[test]
    fn small_elements_are_packed_and_large_counts_are_no_size() {
        assert_eq!(DataType::INT4.bytes(5), Some(3));
        assert_eq!(DataType::UINT2.bytes(5), Some(2));
        assert_eq!(DataType::FLOAT.bytes(u64::MAX / 4), Some(u64::MAX / 4 * 4));
        assert_eq!(DataType::FLOAT.bytes(u64::MAX / 4 + 1), None);
        assert_eq!(DataType::INT4.bytes(u64::MAX), Some(u64::MAX / 2 + 1));
        assert_eq!((DataType(0).bytes(1), DataType(99).bytes(1)), (None, None));
        assert_eq!((DataType::BFLOAT16.to_string(), DataType(99).to_string()), ("bf16".into(), "type 99".into()));
    }
}
