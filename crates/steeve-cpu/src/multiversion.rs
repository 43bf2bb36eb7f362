//! The same code for the registers that the machine has.
//!
//! Nothing is computed differently: the compiler only may use wider registers, where there are some. No multiplication is
//! fused with an addition, so results are equal to the bit with and without them.

/// A function on numbers, compiled for the least machine of its kind and for those with wide registers.
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
                    // SAFETY: the machine has been asked.
                    return unsafe { multiversion($($arg),*) };
                }
            }
            plain($($arg),*)
        }
    };
}

pub(crate) use multiversion;
