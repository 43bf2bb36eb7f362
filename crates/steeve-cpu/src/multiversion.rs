//! Functions compiled several times, for the vector registers that the processor has.
//!
//! Results are equal to the bit: the compiler may only use wider registers where there are some, and no multiplication
//! is fused with an addition.

/// Compiles a function for the baseline of the target and for AVX2, and picks one at run time.
macro_rules! multiversion {
    ($(#[$doc:meta])* $vis:vis fn $name:ident($($arg:ident: $type:ty),* $(,)?) $(-> $result:ty)? $body:block) => {
        $(#[$doc])*
        $vis fn $name($($arg: $type),*) $(-> $result)? {
            #[inline(always)]
            fn plain($($arg: $type),*) $(-> $result)? $body

            #[cfg(target_arch = "x86_64")]
            {
                #[target_feature(enable = "avx2")]
                fn multiversion($($arg: $type),*) $(-> $result)? {
                    plain($($arg),*)
                }
                if is_x86_feature_detected!("avx2") {
                    // SAFETY: the processor has this feature.
                    return unsafe { multiversion($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    };
}

pub(crate) use multiversion;
