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
    /// Appends `a + b`; `b` is repeated to the shape of `a`.
    add Op::Add;
    /// Appends `a - b`; `b` is repeated to the shape of `a`.
    sub Op::Sub;
    /// Appends `a * b`, element by element; `b` is repeated to the shape of `a`.
    mul Op::Mul;
    /// Appends `a / b`, element by element; `b` is repeated to the shape of `a`.
    div Op::Div;
}

one_source! {
    /// Appends the square of each element.
    sqr Op::Sqr;
    /// Appends the square root of each element.
    sqrt Op::Sqrt;
    /// Appends the natural logarithm of each element.
    log Op::Log;
    /// Appends the sum of all elements: one number.
    sum Op::Sum;
    /// Appends the sum of each row.
    sum_rows Op::SumRows;
    /// Appends the mean of each row.
    mean Op::Mean;
    /// Appends a copy without gaps.
    cont Op::Cont;
    /// Appends a copy.
    dup Op::Dup;
    /// Appends the absolute value of each element.
    abs Op::Unary(Unary::Abs);
    /// Appends the sign of each element.
    sgn Op::Unary(Unary::Sgn);
    /// Appends `-a`.
    neg Op::Unary(Unary::Neg);
    /// Appends one for each element above zero, else zero.
    step Op::Unary(Unary::Step);
    /// Appends the hyperbolic tangent of each element.
    tanh Op::Unary(Unary::Tanh);
    /// Appends the exponential linear unit of each element.
    elu Op::Unary(Unary::Elu);
    /// Appends `a` with zeros for negative elements.
    relu Op::Unary(Unary::Relu);
    /// Appends the logistic function of each element.
    sigmoid Op::Unary(Unary::Sigmoid);
    /// Appends the Gaussian error linear unit, approximated by a hyperbolic tangent.
    gelu Op::Unary(Unary::Gelu);
    /// Appends the Gaussian error linear unit, approximated by a logistic function.
    gelu_quick Op::Unary(Unary::GeluQuick);
    /// Appends the Gaussian error linear unit, computed by the error function.
    gelu_erf Op::Unary(Unary::GeluErf);
    /// Appends `a * sigmoid(a)`.
    silu Op::Unary(Unary::Silu);
    /// Appends `a * hardsigmoid(a)`.
    hardswish Op::Unary(Unary::Hardswish);
    /// Appends the logistic function, made of straight lines.
    hardsigmoid Op::Unary(Unary::Hardsigmoid);
    /// Appends the exponential function of each element.
    exp Op::Unary(Unary::Exp);
    /// Appends the exponential function less one.
    expm1 Op::Unary(Unary::Expm1);
    /// Appends the logarithm of one plus the exponential function.
    softplus Op::Unary(Unary::Softplus);
    /// Appends the next integer below each element.
    floor Op::Unary(Unary::Floor);
    /// Appends the next integer above each element.
    ceil Op::Unary(Unary::Ceil);
    /// Appends the nearest integer to each element.
    round Op::Unary(Unary::Round);
    /// Appends the integer part of each element.
    trunc Op::Unary(Unary::Trunc);
}

impl Context {
    /// Appends any elementwise function of one source.
    pub fn unary(&mut self, kind: Unary, a: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Unary(kind), &[Some(a)], &[])
    }

    /// Appends a trainable activation with the four numbers that `ggml_xielu` takes. ggml stores the first two of
    /// them transformed; here they are stored as they are given.
    pub fn xielu(&mut self, a: TensorId, numbers: [f32; 4]) -> Result<TensorId, GraphError> {
        self.apply(Op::Unary(Unary::Xielu), &[Some(a)], &numbers.map(Param::Float))
    }

    /// Appends a gated linear unit of the halves of each row of `a`.
    pub fn glu(&mut self, kind: Glu, a: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Glu(kind), &[Some(a)], &[])
    }

    /// Appends a gated linear unit of two tensors of one shape: the gate is `a`.
    pub fn glu_split(&mut self, kind: Glu, a: TensorId, b: TensorId) -> Result<TensorId, GraphError> {
        self.apply(Op::Glu(kind), &[Some(a), Some(b)], &[])
    }

    /// Appends `a * factor`.
    pub fn scale(&mut self, a: TensorId, factor: f32) -> Result<TensorId, GraphError> {
        self.scale_bias(a, factor, 0.0)
    }

    /// Appends `a * factor + bias`.
    pub fn scale_bias(&mut self, a: TensorId, factor: f32, bias: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::Scale, &[Some(a)], &[factor.into(), bias.into()])
    }

    /// Appends `a` with each element limited to at least `min` and at most `max`.
    ///
    /// The result is a tensor of its own, which the planner may put in the place of `a`; in ggml up to 0.21 it is a
    /// view that destroys `a`.
    pub fn clamp(&mut self, a: TensorId, min: f32, max: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::Clamp, &[Some(a)], &[min.into(), max.into()])
    }

    /// Appends `a` with its negative elements multiplied by `slope`.
    pub fn leaky_relu(&mut self, a: TensorId, slope: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::LeakyRelu, &[Some(a)], &[slope.into()])
    }

    /// Appends `a` with each row less its mean, divided by its deviation.
    pub fn norm(&mut self, a: TensorId, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::Norm, &[Some(a)], &[epsilon.into()])
    }

    /// Appends `a` with each row divided by its root mean square.
    pub fn rms_norm(&mut self, a: TensorId, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::RmsNorm, &[Some(a)], &[epsilon.into()])
    }

    /// Appends `a` with each of `groups` groups of the third dimension normalised as [`norm`](Self::norm) does it.
    pub fn group_norm(&mut self, a: TensorId, groups: u32, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::GroupNorm, &[Some(a)], &[Param::Int(groups.into()), epsilon.into()])
    }

    /// Appends `a` with each row divided by its length.
    pub fn l2_norm(&mut self, a: TensorId, epsilon: f32) -> Result<TensorId, GraphError> {
        self.apply(Op::L2Norm, &[Some(a)], &[epsilon.into()])
    }

    /// Appends `a` with minus infinity above the diagonal that starts at column `past`.
    pub fn diag_mask_inf(&mut self, a: TensorId, past: u32) -> Result<TensorId, GraphError> {
        self.apply(Op::DiagMaskInf, &[Some(a)], &[Param::Int(past.into())])
    }

    /// Appends `a` with zeros above the diagonal that starts at column `past`.
    pub fn diag_mask_zero(&mut self, a: TensorId, past: u32) -> Result<TensorId, GraphError> {
        self.apply(Op::DiagMaskZero, &[Some(a)], &[Param::Int(past.into())])
    }
}
