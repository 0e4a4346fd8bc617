// gunzipped() of byte_stream.h, by zlib.
#include <zlib.h>

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "data/corpus/byte_stream.h"

namespace lockstep {

namespace {

constexpr std::size_t kGzipRoom = 256 << 10;

class GzipStream final : public ByteStream {
 public:
  GzipStream(std::unique_ptr<ByteStream> raw, std::string name)
      : raw_(std::move(raw)), name_(std::move(name)), room_(kGzipRoom) {
    constexpr int kGzipOnly = 16;
    if (::inflateInit2(&state_, MAX_WBITS + kGzipOnly) != Z_OK)
      throw EnvironmentError(fmt::format("{}: zlib has no memory", name_));
  }
  ~GzipStream() override { ::inflateEnd(&state_); }

  std::size_t read(std::span<char> to) override {
    state_.next_out = reinterpret_cast<Bytef*>(to.data());
    state_.avail_out = static_cast<uInt>(std::min<std::size_t>(to.size(), 1 << 30));
    const uInt room = state_.avail_out;
    while (state_.avail_out == room) {
      if (state_.avail_in == 0 && !refill()) {
        if (inside_) refuse_data("ends in the middle of its gzip data", "copy the file again");
        return 0;
      }
      if (!inside_) {
        // Zeros after a member are padding, of tapes and block devices.
        if (any_ && *state_.next_in == 0) {
          ++state_.next_in, --state_.avail_in;
          continue;
        }
        if (any_) ::inflateReset(&state_);
        inside_ = any_ = true;
      }
      const int result = ::inflate(&state_, Z_NO_FLUSH);
      if (result == Z_STREAM_END)
        inside_ = false;
      else if (result != Z_OK && result != Z_BUF_ERROR)
        refuse_data(fmt::format("is not gzip data, or damaged, near byte {}: {}",
                                raw_->raw_bytes() - static_cast<std::int64_t>(state_.avail_in),
                                state_.msg ? state_.msg : "no memory"),
                    "copy the file again, or give it the name of what it is");
    }
    return room - state_.avail_out;
  }
  std::int64_t raw_bytes() const override { return raw_->raw_bytes(); }

 private:
  bool refill() {
    const std::size_t count = raw_->read(room_);
    state_.next_in = reinterpret_cast<Bytef*>(room_.data());
    state_.avail_in = static_cast<uInt>(count);
    return count > 0;
  }
  [[noreturn]] void refuse_data(const std::string& problem, const std::string& remedy) const {
    throw UserError(ExitCode::bad_input_file, fmt::format("{}: {}", name_, problem), remedy);
  }

  std::unique_ptr<ByteStream> raw_;
  std::string name_;
  std::vector<char> room_;
  z_stream state_{};
  bool inside_ = false, any_ = false;  // a member
};

}  // namespace

std::unique_ptr<ByteStream> gunzipped(std::unique_ptr<ByteStream> raw, std::string name) {
  return std::make_unique<GzipStream>(std::move(raw), std::move(name));
}

}  // namespace lockstep
