#include "support/reference_ops.h"

namespace lockstep::tests::reference {

void matmul(HostTensor& c, const HostTensor& a, const HostTensor& b, const HostTensor* bias, MatmulOptions options) {
  const std::int64_t rows = c.dim(0), columns = c.dim(1), inner = options.transpose_a ? a.dim(0) : a.dim(1);
  c.terms = static_cast<double>(inner + 2);
  for (std::int64_t m = 0; m < rows; ++m)
    for (std::int64_t n = 0; n < columns; ++n) {
      Sum sum;
      for (std::int64_t k = 0; k < inner; ++k) {
        const double left = options.transpose_a ? a[k * rows + m] : a[m * inner + k];
        const double right = options.transpose_b ? b[n * inner + k] : b[k * columns + n];
        sum.add(left * right);
      }
      if (bias) sum.add((*bias)[n]);
      if (options.accumulate) sum.add(c[m * columns + n]);
      c.set(m * columns + n, sum.value, sum.size);
    }
}

}  // namespace lockstep::tests::reference
