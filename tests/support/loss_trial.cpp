#include "support/loss_trial.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/cross_entropy.h"
#include "support/recipes.h"
#include "support/reference_ops.h"
#include "tensor/transfer.h"

namespace lockstep::tests {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kBeside = 7.7e22f;  // between rows

// A (rows, columns) view in a buffer of its own, its rows apart by a gap where they are strided.
struct Placed {
  Placed(DType dtype, const Shape& shape, bool strided, Memory& memory)
      : gap(strided ? 3 : 0),
        buffer(memory.allocate(shape[0] * (shape[1] + gap) * size_of(dtype), Tag::data)),
        whole(view(buffer, dtype, {shape[0], shape[1] + gap})),
        rows(whole.slice(1, gap / 2, shape[1])) {}

  std::vector<std::byte> bytes(Stream& stream) const {
    std::vector<std::byte> all(static_cast<std::size_t>(whole.bytes()));
    download(all.data(), whole, stream);
    return all;
  }

  std::int64_t gap;
  Buffer buffer;
  Tensor whole, rows;
};

// The elements of a view whose buffer's bytes these are.
HostTensor read(const Tensor& t, const Placed& in, const std::vector<std::byte>& bytes) {
  HostTensor host("dlogits", t.shape(), t.dtype());
  const std::int64_t size = size_of(t.dtype()), start = in.gap / 2 * size_of(in.whole.dtype());
  for (std::int64_t r = 0; r < t.dim(0); ++r)
    for (std::int64_t c = 0; c < t.dim(1); ++c)
      host.value[r * t.dim(1) + c] = load_element(bytes.data() + start + (r * t.stride(0) + c) * size, t.dtype());
  return host;
}

// Whether the gaps are as they were.
bool gaps_stand(const Placed& in, const std::vector<std::byte>& now, const std::vector<std::byte>& before) {
  const std::int64_t size = size_of(in.whole.dtype()), row = in.whole.dim(1) * size, start = in.gap / 2 * size;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(now.size()); ++i) {
    const std::int64_t at = i % row;
    if ((at < start || at >= start + in.rows.dim(1) * size) && now[i] != before[i]) return false;
  }
  return true;
}

}  // namespace

std::string try_loss(const LossTrial& trial, Memory& memory, Stream& stream) {
  const std::int64_t V = trial.vocabulary;
  std::vector<std::int32_t> targets = {static_cast<std::int32_t>(V / 3), kIgnoredTarget, 0,
                                       static_cast<std::int32_t>(V - 1), static_cast<std::int32_t>(V - 1)};
  const std::int64_t inside = std::ssize(targets);
  if (trial.outside) targets.insert(targets.end(), {static_cast<std::int32_t>(V), -7});
  const std::int64_t N = std::ssize(targets);
  const float scale = trial.to == DType::f16 ? 100.0f : 1.0f / 7;  // fp16's gradients need a loss scale, and get one

  const Placed logits(DType::f32, {N, V}, trial.strided, memory), apart(trial.to, {N, V}, trial.strided, memory);
  HostTensor in("logits", {N, V}, DType::f32), want_losses("losses", {N}, DType::f32),
      want("dlogits", {N, V}, trial.to), at("targets", {N}, DType::i32);
  std::vector<float> image(static_cast<std::size_t>(logits.whole.elements()), kBeside);
  for (std::int64_t r = 0; r < N; ++r) {
    at.value[r] = r < inside ? targets[r] : kIgnoredTarget;
    for (std::int64_t c = 0; c < V; ++c) {
      const bool impossible = r == 2 && c % 3 == 1;
      const float v = r == 3 ? 2.5f : static_cast<float>(3 * normal_number(17, r * V + c));
      image[r * logits.whole.dim(1) + logits.gap / 2 + c] = impossible ? -kInfinity : v;
      in.value[r * V + c] = impossible ? -1e30 : v;  // where the reference can weigh its errors
    }
  }
  reference::cross_entropy(want_losses, &want, in, at, scale);
  for (std::int64_t r = inside; r < N; ++r) {
    want_losses.value[r] = NAN;
    for (std::int64_t c = 0; c < V; ++c) want.value[r * V + c] = NAN;
  }

  const Buffer small = memory.allocate(4096, Tag::data);
  const Tensor losses = view(small, DType::f32, {N}), on_device = view(small, DType::i32, {N}, 256),
               weight = view(small, DType::f32, {1}, 512);
  upload(on_device, targets.data(), stream);
  upload(weight, &scale, stream);

  // The losses, and the bytes of whatever holds the gradients.
  const auto run = [&](const Tensor& dlogits, const Placed& holder) {
    const std::vector<float> nothing(static_cast<std::size_t>(N), -1.0f);
    upload(losses, nothing.data(), stream);
    upload(logits.whole, image.data(), stream);
    cross_entropy({.losses = losses, .dlogits = dlogits, .logits = logits.rows, .targets = on_device, .scale = weight},
                  stream);
    return std::pair(to_doubles(losses, stream), holder.bytes(stream));
  };
  const std::vector<std::byte> poison(static_cast<std::size_t>(apart.whole.bytes()), std::byte{0x7b});
  upload(apart.whole, poison.data(), stream);
  const auto [losses_apart, bytes_apart] = run(apart.rows, apart);
  HostTensor got("losses", {N}, DType::f32);
  got.value = losses_apart;
  if (const std::string wrong = difference(got, want_losses, DType::f32); !wrong.empty()) return wrong;
  const HostTensor gradients = read(apart.rows, apart, bytes_apart);
  if (const std::string wrong = difference(gradients, want, DType::f32); !wrong.empty()) return wrong;
  if (!gaps_stand(apart, bytes_apart, poison)) return "dlogits was written between its rows";

  const Tensor over = logits.rows.narrowed(trial.to);
  const auto [losses_over, bytes_over] = run(over, logits);
  const auto bits = [](double v) { return std::isnan(v) ? kInfinity : v; };
  for (std::int64_t r = 0; r < N; ++r)
    if (bits(losses_over[r]) != bits(losses_apart[r])) return fmt::format("in place, row {} has another loss", r);
  const HostTensor gradients_over = read(over, logits, bytes_over);
  for (std::int64_t i = 0; i < N * V; ++i)
    if (bits(gradients_over[i]) != bits(gradients[i]))
      return fmt::format("in place, row {} has {} for {} at {}", i / V, gradients_over[i], gradients[i], i % V);
  std::vector<std::byte> before(bytes_over.size());
  std::memcpy(before.data(), image.data(), before.size());
  if (!gaps_stand(logits, bytes_over, before)) return "in place, something between the rows was written";

  // Without gradients, as evaluation asks: the marks of targets are written over them.
  upload(logits.whole, image.data(), stream);
  cross_entropy({.losses = losses,
                 .dlogits = {},
                 .logits = logits.rows,
                 .targets = on_device,
                 .scale = weight,
                 .likeliest = on_device},
                stream);
  std::vector<std::int32_t> marks(targets.size());
  download(marks.data(), on_device, stream);
  for (std::int64_t r = 0; r < N; ++r) {
    std::int32_t want_mark = targets[r];
    if (r < inside && targets[r] != kIgnoredTarget) {
      const double* row = in.value.data() + r * V;
      want_mark = std::all_of(row, row + V, [&](double v) { return v <= row[targets[r]]; });
    }
    if (marks[r] != want_mark) return fmt::format("row {} has the mark {} for {}", r, marks[r], want_mark);
  }
  return "";
}

}  // namespace lockstep::tests
