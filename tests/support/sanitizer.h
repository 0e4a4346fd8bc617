// Whether this build runs under a sanitizer: several times slower, with memory of its own, and with reports about
// libraries that are not ours.
#pragma once

namespace lockstep::tests {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kUnderSanitizer = true;
#else
inline constexpr bool kUnderSanitizer = false;
#endif
inline constexpr double kSlowdown = kUnderSanitizer ? 15 : 1;  // that bounds of time allow

}  // namespace lockstep::tests
