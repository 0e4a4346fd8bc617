#include "support/case_run.h"

#include <cstring>
#include <limits>

#include "tensor/transfer.h"

namespace lockstep::tests {

namespace {
constexpr std::int64_t kGuardBytes = 256;

// Beside inputs: all ones, a NaN of every float type. Beside outputs: large finite numbers, which any arithmetic would
// change.
std::byte beside(Role role) { return role == Role::in ? std::byte{0xff} : std::byte{0x7b}; }

Shape with_gaps(const Operand& operand) {
  std::vector<std::int64_t> extents;
  for (int i = 0; i < operand.shape.dims(); ++i) extents.push_back(operand.shape[i] + operand.gaps[i]);
  return Shape(std::span<const std::int64_t>(extents));
}

Tensor cut_from(const Operand& operand, const Buffer& buffer) {
  Tensor t = view(buffer, operand.dtype, with_gaps(operand), kGuardBytes / size_of(operand.dtype));
  for (int i = 0; i < operand.shape.dims(); ++i) t = t.slice(i, operand.gaps[i] / 2, operand.shape[i]);
  return t;
}

// Calls at(byte offset in the buffer, element index) for every element of the operand.
template <class At>
void each_element(const Operand& operand, At&& at) {
  const Shape whole = with_gaps(operand);
  const int dims = operand.shape.dims();
  std::array<std::int64_t, Shape::kMaxDims> index{};
  for (std::int64_t n = 0; n < operand.shape.elements(); ++n) {
    std::int64_t offset = 0;
    for (int i = 0; i < dims; ++i) offset = offset * whole[i] + index[i] + operand.gaps[i] / 2;
    at(kGuardBytes + offset * size_of(operand.dtype), n);
    for (int i = dims - 1; i >= 0 && ++index[i] == operand.shape[i]; --i) index[i] = 0;
  }
}

// A buffer's bytes as a tensor to copy, in pairs: every size here is even.
Tensor all_of(const Buffer& buffer, std::size_t bytes) {
  return view(buffer, DType::f16, {static_cast<std::int64_t>(bytes / 2)});
}
}  // namespace

CaseRun::CaseRun(const KernelCase& kernel, Memory& memory, std::uint64_t seed) : kernel_(kernel) {
  for (std::size_t n = 0; n < kernel_.operands.size(); ++n) {
    const Operand& operand = kernel_.operands[n];
    const std::int64_t bytes = with_gaps(operand).elements() * size_of(operand.dtype) + 2 * kGuardBytes;
    buffers_.push_back(memory.allocate(bytes, Tag::data, operand.name));
    tensors_.push_back(cut_from(operand, buffers_.back()));
    if (memory.device() == Device::meta) continue;
    HostTensor host(operand.name, operand.shape, operand.dtype);
    for (std::int64_t i = 0; i < host.elements(); ++i)
      host.value[i] = operand.role == Role::out ? std::numeric_limits<double>::quiet_NaN()
                                                : round_to(operand.dtype, operand.fill(seed * 1000 + n, i));
    given_.push_back(std::move(host));
    images_.emplace_back(bytes);
  }
  if (memory.device() == Device::meta) return;
  if (kernel_.prepare) {
    kernel_.prepare(given_);
    for (HostTensor& host : given_) {
      round_all(host);
      host.magnitude.clear();
      host.terms = 1;
    }
  }
  for (std::size_t n = 0; n < images_.size(); ++n) set(static_cast<int>(n), given_[n].value);
}

void CaseRun::set(int n, const std::vector<double>& value) {
  const Operand& operand = kernel_.operands[n];
  given_[n].value = value;
  round_all(given_[n]);
  std::fill(images_[n].begin(), images_[n].end(), beside(operand.role));
  // An integer output has no NaN; all ones stand for it.
  each_element(operand, [&](std::int64_t at, std::int64_t i) {
    const bool poisoned_integer = operand.role == Role::out && !is_float(operand.dtype);
    store_element(images_[n].data() + at, operand.dtype, poisoned_integer ? -1 : given_[n][i]);
  });
}

void CaseRun::run(Stream& stream) {
  stream_ = &stream;
  for (std::size_t n = 0; n < images_.size(); ++n)
    upload(all_of(buffers_[n], images_[n].size()), images_[n].data(), stream);
  kernel_.run(tensors_, stream);
  stream.synchronize();
}

std::vector<std::byte> CaseRun::bytes(int n) const {
  std::vector<std::byte> now = images_[n];
  if (stream_) download(now.data(), all_of(buffers_[n], now.size()), *stream_);
  return now;
}

HostTensor CaseRun::read(int n) const {
  const std::vector<std::byte> now = bytes(n);
  HostTensor host = given_[n];
  each_element(kernel_.operands[n],
               [&](std::int64_t at, std::int64_t i) { host.value[i] = load_element(now.data() + at, host.dtype); });
  return host;
}

std::vector<std::byte> CaseRun::outputs() const {
  std::vector<std::byte> all;
  for (std::size_t n = 0; n < kernel_.operands.size(); ++n) {
    if (kernel_.operands[n].role == Role::in) continue;
    const std::vector<std::byte> now = bytes(static_cast<int>(n));
    all.insert(all.end(), now.begin(), now.end());
  }
  return all;
}

std::string CaseRun::trespass() const {
  for (std::size_t n = 0; n < kernel_.operands.size(); ++n) {
    const Operand& operand = kernel_.operands[n];
    std::vector<std::byte> now = bytes(static_cast<int>(n));
    if (operand.role != Role::in)  // its elements may change: take those as they were
      each_element(operand, [&](std::int64_t at, std::int64_t) {
        std::memcpy(now.data() + at, images_[n].data() + at, size_of(operand.dtype));
      });
    for (std::size_t i = 0; i < now.size(); ++i)
      if (now[i] != images_[n][i])
        return fmt::format("{} was written at byte {} of its {} (elements begin at {})", operand.name, i, now.size(),
                           kGuardBytes);
  }
  return "";
}

}  // namespace lockstep::tests
