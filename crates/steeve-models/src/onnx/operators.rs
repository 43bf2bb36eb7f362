//! Which results are views of an input, and which may be written over one.
//!
//! Both are permissions that hold for kernels as runtimes commonly have them: an element is computed from the element at the same place,
//! or a row is read as a whole before it is written.

use super::model::Node;

/// Returns whether the result of a node has the bytes of its first input: only its shape is another.
pub(super) fn is_view(node: &Node) -> bool {
    let views = ["Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"];
    node.domain.is_empty() && views.contains(&node.op_type.as_str())
}

/// Returns whether the result of a node is another each time it runs.
pub(super) fn is_random(node: &Node) -> bool {
    let random = ["Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"];
    random.contains(&node.op_type.as_str())
}

/// Which inputs a result may be written over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overwrites {
    None,
    First,
    FirstTwo,
    /// Either choice of a condition.
    SecondAndThird,
    FirstAndFourth,
}

impl Overwrites {
    pub(super) fn allows(self, slot: usize) -> bool {
        match self {
            Self::None => false,
            Self::First => slot == 0,
            Self::FirstTwo => slot < 2,
            Self::SecondAndThird => slot == 1 || slot == 2,
            Self::FirstAndFourth => slot == 0 || slot == 3,
        }
    }

    /// Returns which inputs the result of a node may be written over, if they have its shape and an element of its size.
    #[rustfmt::skip]
    pub(super) fn of(node: &Node) -> Self {
        match (node.domain.as_str(), node.op_type.as_str()) {
            // An element from the element at the same place.
            ("", "Abs" | "Acos" | "Acosh" | "Affine" | "Asin" | "Asinh" | "Atan" | "Atanh" | "BitwiseNot" | "Cast" | "Ceil" | "Celu"
                | "Clip" | "Cos" | "Cosh" | "Dropout" | "Elu" | "Erf" | "Exp" | "Floor" | "Gelu" | "HardSigmoid" | "HardSwish"
                | "ImageScaler" | "LeakyRelu" | "Log" | "Mish" | "Neg" | "Not" | "ParametricSoftplus" | "PRelu" | "Reciprocal"
                | "Relu" | "Round" | "Scale" | "ScaledTanh" | "Selu" | "Shrink" | "Sigmoid" | "Sign" | "Sin" | "Sinh" | "Softplus"
                | "Softsign" | "Sqrt" | "Swish" | "Tan" | "Tanh" | "ThresholdedRelu" | "Trilu" | "QuantizeLinear" | "DequantizeLinear")
            | ("com.microsoft", "BiasGelu" | "FastGelu" | "Gelu" | "QuickGelu" | "QLinearLeakyRelu" | "QLinearSigmoid")
            // A row that is read before it is written.
            | ("", "BatchNormalization" | "GroupNormalization" | "InstanceNormalization" | "LayerNormalization" | "LogSoftmax"
                | "LpNormalization" | "RMSNormalization" | "SimplifiedLayerNormalization" | "Softmax")
            // The input with a few elements replaced.
            | ("", "Scatter" | "ScatterElements" | "ScatterND") => Self::First,
            ("", "Add" | "Sub" | "Mul" | "Div" | "Mod" | "Pow" | "BitShift" | "BitwiseAnd" | "BitwiseOr" | "BitwiseXor" | "And" | "Or"
                | "Xor" | "Equal" | "Greater" | "Less" | "GreaterOrEqual" | "LessOrEqual")
            | ("com.microsoft", "SkipLayerNormalization" | "SkipSimplifiedLayerNormalization")
            // With more than two inputs, the first two are added first: what is written then must not be a third.
            | ("", "Sum" | "Mean" | "Max" | "Min" | "SwiGLU") => Self::FirstTwo,
            // Between these are scale and zero point of the first.
            ("com.microsoft", "QLinearAdd" | "QLinearMul") => Self::FirstAndFourth,
            ("", "Where") => Self::SecondAndThird,
            _ => Self::None,
        }
    }
}
