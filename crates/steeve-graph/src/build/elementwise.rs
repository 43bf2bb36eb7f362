//! Elementwise operations, norms, masks and sums.

use crate::{Context, Glu, GraphError, Op, Param, TensorId, Unary};

macro_rules! one_source {
    ($($(#[$doc:meta])* $name:ident $op:expr;)*) => {
        impl Context {
            $($(#[$doc])* pub fn $name(&mut self, a: TensorId) -> Result<TensorId, GraphError> {
                self.apply($op, &[Some(a)], &[])
            })*
        }
    };
}

macro_rules! two_sources {
    ($($(#[$doc:meta])* $name:ident $op:expr;)*) => {
        impl Context {
            $($(#[$doc])* pub fn $name(&mut self, a: TensorId, b: TensorId) -> Result<TensorId, GraphError> {
                self.apply($op, &[Some(a), Some(b)], &[])
            })*
        }
    };
}

two_sources! {
    /// `a + b`; `b` is repeated to the shape of `a`.
    add Op::Add;
    /// `a - b`; `b` is repeated to the shape of `a`.
    sub Op::Sub;
    /// `a * b`, element by element; `b` is repeated to the shape of `a`.
    mul Op::Mul;
    /// `a / b`, element by element; `b` is repeated to the shape of `a`.
    div Op::Div;
}

one_source! {
    /// The square.
    sqr Op::Sqr;
    /// The square root.
    sqrt Op::Sqrt;
    /// The natural logarithm.
    log Op::Log;
    /// The sum of all elements: one number.
    sum Op::Sum;
    /// The sum of each row.
    sum_rows Op::SumRows;
    /// The mean of each row.
    mean Op::Mean;
    /// A copy without gaps.
    cont Op::Cont;
    /// A copy.
    dup Op::Dup;
    /// The absolute value.
    abs Op::Unary(Unary::Abs);
    /// The sign.
    sgn Op::Unary(Unary::Sgn);
    /// `-a`.
    neg Op::Unary(Unary::Neg);
    /// One above zero, else zero.
    step Op::Unary(Unary::Step);
    /// The hyperbolic tangent.
    tanh Op::Unary(Unary::Tanh);
    /// The exponential linear unit.
    elu Op::Unary(Unary::Elu);
    /// Zero for negative elements.
    relu Op::Unary(Unary::Relu);
    /// The logistic function.
    sigmoid Op::Unary(Unary::Sigmoid);
    /// The Gaussian error linear unit, approximated by a hyperbolic tangent.
    gelu Op::Unary(Unary::Gelu);
    /// The same, approximated by a logistic function.
    gelu_quick Op::Unary(Unary::GeluQuick);
    /// The same, exactly.
    gelu_erf Op::Unary(Unary::GeluErf);
    /// `a * sigmoid(a)`.
    silu Op::Unary(Unary::Silu);
    /// `a * hardsigmoid(a)`.
    hardswish Op::Unary(Unary::Hardswish);
    /// The logistic function, made of straight lines.
    hardsigmoid Op::Unary(Unary::Hardsigmoid);
    /// The exponential function.
    exp Op::Unary(Unary::Exp);
    /// The exponential function less one.
    expm1 Op::Unary(Unary::Expm1);
    /// The logarithm of one plus the exponential function.
    softplus Op::Unary(Unary::Softplus);
    /// The next integer below.
    floor Op::Unary(Unary::Floor);
    /// The next integer above.
    ceil Op::Unary(Unary::Ceil);
    /// The nearest integer.
    round Op::Unary(Unary::Round);
    /// The integer part.
    trunc Op::Unary(Unary::Trunc);
}

impl Context {
    /// Any elementwise function of one source.
    pub fn unary(&mut self, kind: Unary, a: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Unary(kind), &[Some(a)], &[])
    }

    /// A trainable activation, with its four numbers.
    /// They are those that `ggml_xielu` takes; ggml stores the first two of them transformed, and nobody does here.
    pub fn xielu(&mut self, a: TensorId, numbers: [f32; 4]) -> Result<TensorId, GraphError> {
        self.apply(Op::Unary(Unary::Xielu), &[Some(a)], &numbers.map(Param::Float))
    }

    /// A gated linear unit of the halves of each row of `a`.
    pub fn glu(&mut self, kind: Glu, a: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Glu(kind), &[Some(a)], &[])
    }

    /// A gated linear unit of two tensors of one shape: the gate is `a`.
    pub fn glu_split(&mut self, kind: Glu, a: TensorId, b: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Glu(kind), &[Some(a), Some(b)], &[])
    }

    /// `a * factor`.
    pub fn scale(&mut self, a: TensorId, factor: f32) -> Result<TensorId, GraphError> {
        self.scale_bias(a, factor, 0.0)
    }

    /// `a * factor + bias`.
    pub fn scale_bias(&mut self, a: TensorId, factor: f32, bias: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::Scale, &[Some(a)], &[factor.into(), bias.into()])
    }

    /// Each element at least `min` and at most `max`.
    ///
    /// The result is a tensor of its own, which the planner may put in the place of `a`; in ggml up to 0.21 it is a
    /// view that destroys `a`.
    pub fn clamp(&mut self, a: TensorId, min: f32, max: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::Clamp, &[Some(a)], &[min.into(), max.into()])
    }

    /// `a`, and `a * slope` where that is negative.
    pub fn leaky_relu(&mut self, a: TensorId, slope: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::LeakyRelu, &[Some(a)], &[slope.into()])
    }

    /// Each row less its mean, divided by its deviation.
    pub fn norm(&mut self, a: TensorId, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::Norm, &[Some(a)], &[epsilon.into()])
    }

    /// Each row divided by its root mean square.
    pub fn rms_norm(&mut self, a: TensorId, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::RmsNorm, &[Some(a)], &[epsilon.into()])
    }

    /// [`norm`](Self::norm) over `groups` groups of the third dimension.
    pub fn group_norm(&mut self, a: TensorId, groups: u32, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::GroupNorm, &[Some(a)], &[Param::Int(groups.into()), epsilon.into()])
    }

    /// Each row divided by its length.
    pub fn l2_norm(&mut self, a: TensorId, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::L2Norm, &[Some(a)], &[epsilon.into()])
    }

    /// Minus infinity above the diagonal that starts at column `past`.
    pub fn diag_mask_inf(&mut self, a: TensorId, past: u32) -> Result<TensorId, GraphError> {
        self.apply(Op::DiagMaskInf, &[Some(a)], &[Param::Int(past.into())])
    }

    /// Zero above the diagonal that starts at column `past`.
    pub fn diag_mask_zero(&mut self, a: TensorId, past: u32) -> Result<TensorId, GraphError> {
        self.apply(Op::DiagMaskZero, &[Some(a)], &[Param::Int(past.into())])
    }
}
