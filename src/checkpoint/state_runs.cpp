#include "checkpoint/state_runs.h"

#include <algorithm>
#include <vector>

#include "checkpoint/convert.h"

namespace lockstep {

Tensor elements_of(const Run& run, const Tensor& flat) {
  if (!run.here.apart()) return flat.slice(0, run.here.begin, run.elements());
  return flat.rows_apart(run.here.begin, run.rows(), run.row(), run.here.pitch);
}

StateTensor state_of(std::string_view part, const LogicalTensor& tensor, const Run& run, const Tensor& flat) {
  return {.part = std::string(part), .tensor = tensor, .range = run.there, .live = elements_of(run, flat)};
}

void upload_runs(const Tensor& flat, std::span<const Run> runs, const ConstTensor& values, Stream& stream) {
  if (runs.empty()) return;
  LOCKSTEP_CHECK(values.contiguous(), "values with gaps");
  const char* from = static_cast<const char*>(values.raw());
  const std::int64_t size = size_of(values.dtype());
  if (runs.size() == 1 && runs[0].rows() == 1) {
    upload_floats(flat.slice(0, runs[0].here.begin, runs[0].row()), from + runs[0].there.begin * size, values.dtype(),
                  stream);
    return;
  }
  std::vector<char> staged(static_cast<std::size_t>(flat.elements() * size));
  for (const Run& run : runs)
    for (std::int64_t row = 0; row < run.rows(); ++row)
      std::copy_n(from + (run.there.begin + row * run.there.pitch) * size, run.row() * size,
                  staged.data() + (run.here.begin + row * run.here.pitch) * size);
  upload_floats(flat, staged.data(), values.dtype(), stream);
}

}  // namespace lockstep
