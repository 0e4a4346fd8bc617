// unzstd() of byte_stream.h, by libzstd.
#include <zstd.h>

#include <vector>

#include "base/error.h"
#include "data/corpus/byte_stream.h"

namespace lockstep {

namespace {

constexpr int kWidestWindow = 27;  // 128 MiB: what `zstd --long` takes, and more memory than this is not given

class ZstdStream final : public ByteStream {
 public:
  ZstdStream(std::unique_ptr<ByteStream> raw, std::string name)
      : raw_(std::move(raw)), name_(std::move(name)), context_(::ZSTD_createDCtx()), room_(::ZSTD_DStreamInSize()) {
    if (!context_) throw EnvironmentError(fmt::format("{}: libzstd has no memory", name_));
    ::ZSTD_DCtx_setParameter(context_, ZSTD_d_windowLogMax, kWidestWindow);
  }
  ~ZstdStream() override { ::ZSTD_freeDCtx(context_); }

  std::size_t read(std::span<char> to) override {
    ZSTD_outBuffer out{to.data(), to.size(), 0};
    while (out.pos == 0) {
      // A call may give more of what was read before; so the end of the input is looked for only where it gave none.
      if (in_.pos == in_.size && !flushing_ && !refill()) {
        if (inside_)
          throw UserError(ExitCode::bad_input_file, fmt::format("{}: ends in the middle of its zstd data", name_),
                          "copy the file again");
        return 0;
      }
      const std::size_t left = ::ZSTD_decompressStream(context_, &out, &in_);
      if (::ZSTD_isError(left))
        throw UserError(
            ExitCode::bad_input_file,
            fmt::format("{}: is not zstd data, or damaged, near byte {}: {}", name_,
                        raw_->raw_bytes() - static_cast<std::int64_t>(in_.size - in_.pos), ::ZSTD_getErrorName(left)),
            "copy the file again, or give it the name of what it is");
      inside_ = left != 0;
      flushing_ = inside_ && out.pos == out.size;
    }
    return out.pos;
  }
  std::int64_t raw_bytes() const override { return raw_->raw_bytes(); }

 private:
  bool refill() {
    in_ = {room_.data(), raw_->read(room_), 0};
    return in_.size > 0;
  }

  std::unique_ptr<ByteStream> raw_;
  std::string name_;
  ZSTD_DCtx* context_;
  std::vector<char> room_;
  ZSTD_inBuffer in_{nullptr, 0, 0};
  bool inside_ = false, flushing_ = false;  // a frame; its output did not fit
};

}  // namespace

std::unique_ptr<ByteStream> unzstd(std::unique_ptr<ByteStream> raw, std::string name) {
  return std::make_unique<ZstdStream>(std::move(raw), std::move(name));
}

}  // namespace lockstep
