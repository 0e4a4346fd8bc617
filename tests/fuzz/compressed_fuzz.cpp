// Any bytes at all, as a gzip and as a zstd stream: what they unpack to does not depend on the sizes of reads, or a
// UserError says in one line what is wrong. The first byte says how large the reads are.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "data/corpus/byte_stream.h"

namespace {

using namespace lockstep;

void require(bool claim) {
  if (!claim) std::abort();
}

class Bytes final : public ByteStream {
 public:
  Bytes(std::string_view all, std::size_t most) : all_(all), most_(most) {}
  std::size_t read(std::span<char> to) override {
    const std::size_t count = std::min({to.size(), most_, all_.size() - at_});
    std::copy_n(all_.begin() + static_cast<std::ptrdiff_t>(at_), count, to.begin());
    at_ += count;
    return count;
  }
  std::int64_t raw_bytes() const override { return static_cast<std::int64_t>(at_); }

 private:
  std::string_view all_;
  std::size_t most_, at_ = 0;
};

struct Unpacked {
  std::string bytes, problem;
};
constexpr std::size_t kEnough = 4 << 20;  // of what a bomb unpacks to

using Unpack = std::unique_ptr<ByteStream>(std::unique_ptr<ByteStream> raw, std::string name);
Unpacked unpacked(Unpack* unpack, std::string_view raw, std::size_t raw_reads, std::size_t reads) {
  Unpacked result;
  std::vector<char> room(reads);
  try {
    const auto stream = unpack(std::make_unique<Bytes>(raw, raw_reads), "fuzz");
    while (const std::size_t count = stream->read(room)) {
      require(count <= room.size());
      result.bytes.append(room.data(), count);
      require(stream->raw_bytes() <= static_cast<std::int64_t>(raw.size()));
      if (result.bytes.size() > kEnough) break;
    }
  } catch (const UserError& error) {
    result.problem = error.what();
    require(error.code() == ExitCode::bad_input_file);
    require(result.problem.starts_with("fuzz: ") && result.problem.find('\n') == std::string::npos);
    require(result.problem.size() < 300);
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view raw(reinterpret_cast<const char*>(data) + 1, size - 1);
  for (Unpack* const unpack : {&gunzipped, &unzstd}) {
    const Unpacked whole = unpacked(unpack, raw, size, 1 << 16);
    const Unpacked some = unpacked(unpack, raw, 1 + data[0] % 16, 1 + data[0]);
    const std::size_t both = std::min(whole.bytes.size(), some.bytes.size());
    require(whole.bytes.compare(0, both, some.bytes, 0, both) == 0);
    if (whole.bytes.size() > kEnough || some.bytes.size() > kEnough) continue;
    require(whole.problem.empty() == some.problem.empty());
    if (whole.problem.empty()) require(whole.bytes == some.bytes);
  }
  return 0;
}
