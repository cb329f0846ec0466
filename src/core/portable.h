// What code shared by host, device and NVRTC needs instead of std headers.
#ifndef STROBE_SRC_CORE_PORTABLE_H_
#define STROBE_SRC_CORE_PORTABLE_H_

#ifdef __CUDACC__
#define STROBE_HOST_DEVICE __host__ __device__
#else
#define STROBE_HOST_DEVICE
#endif

namespace strobe::core {

using u32 = unsigned int;
using u64 = unsigned long long;
// std::int64_t.
#ifdef __INT64_TYPE__
using i64 = __INT64_TYPE__;
#else
using i64 = long long;
#endif

}  // namespace strobe::core

#endif  // STROBE_SRC_CORE_PORTABLE_H_
