#include "tensor/transfer.h"

#include <cstring>
#include <new>
#include <utility>

#include "tensor/cuda/device.h"
#include "tensor/disk/file_memory.h"
#include "tensor/fp8.h"

namespace lockstep {

namespace {
bool by_rows(const ConstTensor& t) { return t.dims() == 2 && t.stride(1) == 1 && t.stride(0) >= t.dim(1); }

// A contiguous tensor is one row.
cuda::CopiedRows rows_of(const ConstTensor& t) {
  if (t.contiguous()) return {.rows = 1, .row_bytes = t.bytes(), .pitch_bytes = t.bytes()};
  const std::int64_t size = size_of(t.dtype());
  return {.rows = t.dim(0), .row_bytes = t.dim(1) * size, .pitch_bytes = t.stride(0) * size};
}

bool check_and_move(const ConstTensor& t, const Stream& stream) {
  LOCKSTEP_CHECK(t.contiguous() || by_rows(t), "a copy of a tensor {} that is not contiguous", t.shape());
  LOCKSTEP_CHECK(t.device() == stream.device(), "a copy of a tensor on {} in a stream of {}", name_of(t.device()),
                 name_of(stream.device()));
  return t.bytes() > 0;
}

bool is_beside(const ConstTensor& t, const Stream& stream) {
  return t.bytes() > 0 &&
         (t.device() == Device::disk || (t.device() == Device::cpu && stream.device() == Device::cuda));
}

void write_to_disk(const Tensor& to, const void* from) {
  const cuda::CopiedRows rows = rows_of(to);
  disk::FileMemory& file = disk::FileMemory::of(to.raw());
  for (std::int64_t i = 0; i < rows.rows; ++i)
    file.write(static_cast<char*>(to.raw()) + i * rows.pitch_bytes, static_cast<const char*>(from) + i * rows.row_bytes,
               rows.row_bytes);
}

void read_from_disk(void* to, const ConstTensor& from) {
  const cuda::CopiedRows rows = rows_of(from);
  disk::FileMemory& file = disk::FileMemory::of(from.raw());
  for (std::int64_t i = 0; i < rows.rows; ++i)
    file.read(static_cast<char*>(to) + i * rows.row_bytes, static_cast<const char*>(from.raw()) + i * rows.pitch_bytes,
              rows.row_bytes);
}

void upload_to_host(const Tensor& to, const void* from) {
  const cuda::CopiedRows rows = rows_of(to);
  for (std::int64_t i = 0; i < rows.rows; ++i)
    std::memcpy(static_cast<char*>(to.raw()) + i * rows.pitch_bytes,
                static_cast<const char*>(from) + i * rows.row_bytes, static_cast<std::size_t>(rows.row_bytes));
}

void download_from_host(void* to, const ConstTensor& from) {
  const cuda::CopiedRows rows = rows_of(from);
  for (std::int64_t i = 0; i < rows.rows; ++i)
    std::memcpy(static_cast<char*>(to) + i * rows.row_bytes,
                static_cast<const char*>(from.raw()) + i * rows.pitch_bytes, static_cast<std::size_t>(rows.row_bytes));
}
}  // namespace

void upload_later(Tensor to, const void* from, Stream& stream) {
  if (!check_and_move(to, stream)) return;
  switch (to.device()) {
    case Device::cpu:
      upload_to_host(to, from);
      break;
    case Device::cuda:
      cuda::upload_later(to.raw(), from, rows_of(to), stream);
      break;
    case Device::meta:
    case Device::disk:
      break;
  }
}

void download_later(void* to, ConstTensor from, Stream& stream) {
  if (!check_and_move(from, stream)) return;
  switch (from.device()) {
    case Device::cpu:
      download_from_host(to, from);
      break;
    case Device::meta:
      std::memset(to, 0, from.bytes());
      break;
    case Device::cuda:
      cuda::download_later(to, from.raw(), rows_of(from), stream);
      break;
    case Device::disk:
      break;
  }
}

void upload(Tensor to, const void* from, Stream& stream) {
  if (is_beside(to, stream)) {
    stream.synchronize();
    return to.device() == Device::disk ? write_to_disk(to, from) : upload_to_host(to, from);
  }
  upload_later(to, from, stream);
  stream.synchronize();
}

void download(void* to, ConstTensor from, Stream& stream) {
  if (is_beside(from, stream)) {
    stream.synchronize();
    return from.device() == Device::disk ? read_from_disk(to, from) : download_from_host(to, from);
  }
  download_later(to, from, stream);
  stream.synchronize();
}

HostBuffer::HostBuffer(std::int64_t bytes, const Stream& stream) : bytes_(bytes) {
  if (bytes == 0) return;
  pinned_ = stream.device() == Device::cuda;
  data_ = pinned_ ? cuda::take_pinned(bytes) : ::operator new(static_cast<std::size_t>(bytes));
}

HostBuffer& HostBuffer::operator=(HostBuffer&& other) noexcept {
  if (this != &other) {
    release();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    pinned_ = other.pinned_;
  }
  return *this;
}

void HostBuffer::release() noexcept {
  if (pinned_)
    cuda::give_back_pinned(data_);
  else
    ::operator delete(data_);
  data_ = nullptr;
}

namespace {
template <class T>
std::vector<double> widened(const ConstTensor& from, Stream& stream) {
  std::vector<T> values(from.elements());
  download(values.data(), from, stream);
  std::vector<double> wide(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if constexpr (sizeof(T) <= 2)
      wide[i] = static_cast<float>(values[i]);
    else
      wide[i] = values[i];
  }
  return wide;
}
}  // namespace

std::vector<double> to_doubles(ConstTensor from, Stream& stream) {
  switch (from.dtype()) {
    case DType::f64:
      return widened<double>(from, stream);
    case DType::f32:
      return widened<float>(from, stream);
    case DType::bf16:
      return widened<bf16>(from, stream);
    case DType::f16:
      return widened<f16>(from, stream);
    case DType::f8e4m3:
      return widened<f8e4m3>(from, stream);
    case DType::f8e5m2:
      return widened<f8e5m2>(from, stream);
    default:
      LOCKSTEP_CHECK(false, "a tensor of {} as doubles", name_of(from.dtype()));
  }
}

}  // namespace lockstep
