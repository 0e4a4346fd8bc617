#include "comm/control/frame_stream.h"

#include <utility>

#include "comm/error.h"

namespace lockstep::control {

void FrameSealer::append(const Frame& frame, std::string& to) {
  LOCKSTEP_CHECK(frame.payload.size() <= kMostPayload, "a payload of {} bytes", frame.payload.size());
  to += std::exchange(unsent_header_, {});
  sealer_.seal(header_of(frame).encode(), to);
  if (!frame.payload.empty()) sealer_.seal(frame.payload, to);
}

void FrameBuffer::feed(std::string_view bytes) {
  bytes_.erase(0, begin_);
  begin_ = 0;
  bytes_.append(bytes);
}

std::optional<std::string_view> FrameBuffer::take(std::size_t count) {
  if (bytes_.size() - begin_ < count) return std::nullopt;
  const std::string_view taken = std::string_view(bytes_).substr(begin_, count);
  begin_ += count;
  return taken;
}

std::string FrameBuffer::open(std::string_view sealed) {
  std::optional<std::string> message = broken_ ? std::nullopt : opener_->open(sealed);
  broken_ = true;
  if (!message) throw CommError("a frame does not verify: it was changed or repeated on its way");
  broken_ = false;
  return std::move(*message);
}

std::optional<Frame> FrameBuffer::next() {
  if (broken_) open({});
  if (!opener_) {
    const auto start = key_ ? take(kSealHeaderBytes) : std::nullopt;
    if (!start) return std::nullopt;
    opener_.emplace(*key_, *start);
    key_.reset();
  }
  if (!header_) {
    const auto sealed = take(kHeaderBytes + kSealBytes);
    if (!sealed) return std::nullopt;
    const std::string header = open(*sealed);
    broken_ = true;  // should it break a limit
    header_ = FrameHeader::decode(header);
    broken_ = false;
  }
  std::string payload;
  if (header_->length > 0) {
    const auto sealed = take(header_->length + kSealBytes);
    if (!sealed) return std::nullopt;
    payload = open(*sealed);
  }
  const FrameHeader header = *std::exchange(header_, std::nullopt);
  return Frame{header.type, header.epoch, std::move(payload)};
}

}  // namespace lockstep::control
