#include "checkpoint/safetensors_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <set>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/integers.h"

namespace lockstep {
namespace {

constexpr std::int64_t kDataAlignment = 64;

[[noreturn]] void fail(const char* call, const std::filesystem::path& path) {
  const int error = errno;
  throw EnvironmentError(fmt::format("{}: {} failed: {}", path.string(), call, std::generic_category().message(error)));
}

// The file being written. Unless published it is removed again, whatever the way out.
class PartialFile {
 public:
  explicit PartialFile(std::filesystem::path path) : path_(std::move(path)) {
    fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd_ < 0) fail("open", path_);
  }
  ~PartialFile() {
    if (fd_ >= 0) ::close(fd_);
    if (!published_) ::unlink(path_.c_str());
  }
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  void write(const void* data, std::int64_t bytes) {
    for (const char* at = static_cast<const char*>(data); bytes > 0;) {
      const ssize_t written = ::write(fd_, at, static_cast<std::size_t>(bytes));
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail("write", path_);
      at += written;
      bytes -= written;
    }
  }

  void publish(const std::filesystem::path& path) {
    if (::fsync(fd_) != 0) fail("fsync", path_);
    if (::close(std::exchange(fd_, -1)) != 0) fail("close", path_);
    if (::rename(path_.c_str(), path.c_str()) != 0) fail("rename", path);
    published_ = true;
  }

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  bool published_ = false;
};

// Makes the rename itself durable.
void sync_folder(const std::filesystem::path& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail("open", folder);
  const int result = ::fsync(fd), error = errno;
  ::close(fd);
  errno = error;
  if (result != 0 && error != EINVAL) fail("fsync", folder);  // EINVAL: a file system whose folders need no sync
}

std::vector<const NamedTensor*> in_file_order(std::span<const NamedTensor> tensors) {
  std::vector<const NamedTensor*> order;
  std::set<std::string_view> names;
  for (const NamedTensor& t : tensors) {
    LOCKSTEP_CHECK(t.name != "__metadata__", "a tensor may not be named {}", t.name);
    LOCKSTEP_CHECK(!t.tensor.none() && t.tensor.device() == Device::cpu, "tensor '{}' has no elements on the CPU",
                   t.name);
    LOCKSTEP_CHECK(t.tensor.contiguous(), "tensor '{}' {} is not contiguous", t.name, t.tensor.shape());
    LOCKSTEP_CHECK(names.insert(t.name).second, "tensor '{}' comes twice", t.name);
    order.push_back(&t);
  }
  std::sort(order.begin(), order.end(), [](const NamedTensor* a, const NamedTensor* b) {
    const std::int64_t wide_a = size_of(a->tensor.dtype()), wide_b = size_of(b->tensor.dtype());
    return wide_a != wide_b ? wide_a > wide_b : a->name < b->name;
  });
  return order;
}

// A name or value as JSON text.
std::string json_string(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception& error) {
    throw ProgramError(fmt::format("text for a safetensors header is not UTF-8: {}", error.what()));
  }
}

std::string header_of(const std::vector<const NamedTensor*>& order, const SafetensorsMetadata& metadata) {
  std::string text = "{", separator;
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata) {
      text += std::exchange(separator, ",") + json_string(key) + ":" + json_string(value);
    }
    text += "}";
  }
  std::int64_t begin = 0;
  for (const NamedTensor* t : order) {
    std::vector<std::int64_t> shape;
    for (int i = 0; i < t->tensor.dims(); ++i) shape.push_back(t->tensor.dim(i));
    const std::int64_t end = begin + t->tensor.bytes();
    text += fmt::format(R"({}{}:{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})", std::exchange(separator, ","),
                        json_string(t->name), safetensors_name(t->tensor.dtype()), fmt::join(shape, ","), begin, end);
    begin = end;
  }
  text += "}";
  const auto size = static_cast<std::int64_t>(text.size());
  text.append(static_cast<std::size_t>(round_up(8 + size, kDataAlignment) - 8 - size), ' ');
  return text;
}

}  // namespace

void write_safetensors(const std::filesystem::path& path, std::span<const NamedTensor> tensors,
                       const SafetensorsMetadata& metadata) {
  const std::vector<const NamedTensor*> order = in_file_order(tensors);
  const std::string header = header_of(order, metadata);
  const std::uint64_t length = header.size();
  LOCKSTEP_CHECK(length <= static_cast<std::uint64_t>(kMaxHeaderBytes), "a header of {} bytes", length);

  std::filesystem::path partial = path;
  partial += ".partial";
  PartialFile file(partial);
  file.write(&length, sizeof length);
  file.write(header.data(), static_cast<std::int64_t>(length));
  for (const NamedTensor* t : order) file.write(t->tensor.raw(), t->tensor.bytes());
  file.publish(path);
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

}  // namespace lockstep
