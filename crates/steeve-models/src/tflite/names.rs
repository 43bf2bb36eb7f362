//! The operators of TFLite by name and number, and its data types.

/// A builtin operator, by its number in TFLite's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BuiltinOp(pub i32);

/// What errors and pictures call an operator whose number is not known.
const UNKNOWN: &str = "UNKNOWN";

macro_rules! builtin_ops {
    ($($name:ident)*) => {
        #[expect(non_camel_case_types, clippy::upper_case_acronyms, reason = "the names are the schema's")]
        enum Number {
            $($name,)*
        }

        #[allow(missing_docs, reason = "the names say it")]
        impl BuiltinOp {
            $(pub const $name: Self = Self(Number::$name as i32);)*
        }

        const NAMES: &[&str] = &[$(stringify!($name),)*];
    };
}

builtin_ops! {
    ADD AVERAGE_POOL_2D CONCATENATION CONV_2D DEPTHWISE_CONV_2D DEPTH_TO_SPACE DEQUANTIZE EMBEDDING_LOOKUP FLOOR
    FULLY_CONNECTED HASHTABLE_LOOKUP L2_NORMALIZATION L2_POOL_2D LOCAL_RESPONSE_NORMALIZATION LOGISTIC LSH_PROJECTION
    LSTM MAX_POOL_2D MUL RELU RELU_N1_TO_1 RELU6 RESHAPE RESIZE_BILINEAR RNN SOFTMAX SPACE_TO_DEPTH SVDF TANH
    CONCAT_EMBEDDINGS SKIP_GRAM CALL CUSTOM EMBEDDING_LOOKUP_SPARSE PAD UNIDIRECTIONAL_SEQUENCE_RNN GATHER
    BATCH_TO_SPACE_ND SPACE_TO_BATCH_ND TRANSPOSE MEAN SUB DIV SQUEEZE UNIDIRECTIONAL_SEQUENCE_LSTM STRIDED_SLICE
    BIDIRECTIONAL_SEQUENCE_RNN EXP TOPK_V2 SPLIT LOG_SOFTMAX DELEGATE BIDIRECTIONAL_SEQUENCE_LSTM CAST PRELU MAXIMUM
    ARG_MAX MINIMUM LESS NEG PADV2 GREATER GREATER_EQUAL LESS_EQUAL SELECT SLICE SIN TRANSPOSE_CONV SPARSE_TO_DENSE
    TILE EXPAND_DIMS EQUAL NOT_EQUAL LOG SUM SQRT RSQRT SHAPE POW ARG_MIN FAKE_QUANT REDUCE_PROD REDUCE_MAX PACK
    LOGICAL_OR ONE_HOT LOGICAL_AND LOGICAL_NOT UNPACK REDUCE_MIN FLOOR_DIV REDUCE_ANY SQUARE ZEROS_LIKE FILL FLOOR_MOD
    RANGE RESIZE_NEAREST_NEIGHBOR LEAKY_RELU SQUARED_DIFFERENCE MIRROR_PAD ABS SPLIT_V UNIQUE CEIL REVERSE_V2 ADD_N
    GATHER_ND COS WHERE RANK ELU REVERSE_SEQUENCE MATRIX_DIAG QUANTIZE MATRIX_SET_DIAG ROUND HARD_SWISH IF WHILE
    NON_MAX_SUPPRESSION_V4 NON_MAX_SUPPRESSION_V5 SCATTER_ND SELECT_V2 DENSIFY SEGMENT_SUM BATCH_MATMUL
    PLACEHOLDER_FOR_GREATER_OP_CODES CUMSUM CALL_ONCE BROADCAST_TO RFFT2D CONV_3D IMAG REAL COMPLEX_ABS HASHTABLE
    HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE REDUCE_ALL CONV_3D_TRANSPOSE VAR_HANDLE READ_VARIABLE
    ASSIGN_VARIABLE BROADCAST_ARGS RANDOM_STANDARD_NORMAL BUCKETIZE RANDOM_UNIFORM MULTINOMIAL GELU
    DYNAMIC_UPDATE_SLICE RELU_0_TO_1 UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_MAX UNSORTED_SEGMENT_SUM ATAN2
    UNSORTED_SEGMENT_MIN SIGN BITCAST BITWISE_XOR RIGHT_SHIFT STABLEHLO_LOGISTIC STABLEHLO_ADD STABLEHLO_DIVIDE
    STABLEHLO_MULTIPLY STABLEHLO_MAXIMUM STABLEHLO_RESHAPE STABLEHLO_CLAMP STABLEHLO_CONCATENATE
    STABLEHLO_BROADCAST_IN_DIM STABLEHLO_CONVOLUTION STABLEHLO_SLICE STABLEHLO_CUSTOM_CALL STABLEHLO_REDUCE
    STABLEHLO_ABS STABLEHLO_AND STABLEHLO_COSINE STABLEHLO_EXPONENTIAL STABLEHLO_FLOOR STABLEHLO_LOG STABLEHLO_MINIMUM
    STABLEHLO_NEGATE STABLEHLO_OR STABLEHLO_POWER STABLEHLO_REMAINDER STABLEHLO_RSQRT STABLEHLO_SELECT
    STABLEHLO_SUBTRACT STABLEHLO_TANH STABLEHLO_SCATTER STABLEHLO_COMPARE STABLEHLO_CONVERT STABLEHLO_DYNAMIC_SLICE
    STABLEHLO_DYNAMIC_UPDATE_SLICE STABLEHLO_PAD STABLEHLO_IOTA STABLEHLO_DOT_GENERAL STABLEHLO_REDUCE_WINDOW
    STABLEHLO_SORT STABLEHLO_WHILE STABLEHLO_GATHER STABLEHLO_TRANSPOSE DILATE STABLEHLO_RNG_BIT_GENERATOR
    REDUCE_WINDOW STABLEHLO_COMPOSITE STABLEHLO_SHIFT_LEFT STABLEHLO_CBRT STABLEHLO_CASE
}

impl BuiltinOp {
    /// Returns the operator's name in TFLite's spelling, such as `CONV_2D`; `UNKNOWN` for numbers that are newer than this table.
    pub fn name(self) -> &'static str {
        usize::try_from(self.0).ok().and_then(|number| NAMES.get(number)).copied().unwrap_or(UNKNOWN)
    }
}

/// A data type, by its number in TFLite's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DataType(pub i8);

/// Name and bytes of an element in TensorFlow Lite Micro, by number. Elements of 4 bits have a byte each once they are computed.
const TYPES: &[(&str, Option<u64>)] = &[
    ("FLOAT32", Some(4)),
    ("FLOAT16", Some(2)),
    ("INT32", Some(4)),
    ("UINT8", Some(1)),
    ("INT64", Some(8)),
    ("STRING", None),
    ("BOOL", Some(1)),
    ("INT16", Some(2)),
    ("COMPLEX64", Some(8)),
    ("INT8", Some(1)),
    ("FLOAT64", Some(8)),
    ("COMPLEX128", Some(16)),
    ("UINT64", Some(8)),
    ("RESOURCE", Some(4)),
    ("VARIANT", Some(4)),
    ("UINT32", Some(4)),
    ("UINT16", Some(2)),
    ("INT4", Some(1)),
    ("BFLOAT16", Some(2)),
];

impl DataType {
    /// 32-bit floating point numbers.
    pub const FLOAT32: Self = Self(0);
    /// 32-bit integers.
    pub const INT32: Self = Self(2);
    /// 8-bit unsigned integers.
    pub const UINT8: Self = Self(3);
    /// 64-bit integers.
    pub const INT64: Self = Self(4);
    /// Truth values.
    pub const BOOL: Self = Self(6);
    /// 16-bit integers.
    pub const INT16: Self = Self(7);
    /// 8-bit integers.
    pub const INT8: Self = Self(9);
    /// 4-bit integers.
    pub const INT4: Self = Self(17);
    /// Handles of variables.
    pub const RESOURCE: Self = Self(13);

    fn entry(self) -> Option<(&'static str, Option<u64>)> {
        usize::try_from(self.0).ok().and_then(|number| TYPES.get(number)).copied()
    }

    /// Returns the type's name in TFLite's spelling, or its number.
    pub fn name(self) -> String {
        self.entry().map_or_else(|| self.0.to_string(), |(name, _)| name.to_owned())
    }

    /// Returns the bytes of an element in TensorFlow Lite Micro; `None` where they are not known.
    pub fn size(self) -> Option<u64> {
        self.entry()?.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_schema() {
        assert_eq!((BuiltinOp::ADD.0, BuiltinOp::CUSTOM.0, BuiltinOp::CALL_ONCE.0), (0, 32, 129));
        assert_eq!(
            (BuiltinOp(3).name(), BuiltinOp(70_000).name(), BuiltinOp(-1).name()),
            ("CONV_2D", UNKNOWN, UNKNOWN)
        );
        assert_eq!((DataType(13).name(), DataType(13).size(), DataType(5).size()), ("RESOURCE".into(), Some(4), None));
        assert_eq!((DataType(100).name(), DataType(-1).size()), ("100".into(), None));
    }
}
