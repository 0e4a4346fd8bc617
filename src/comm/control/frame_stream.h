// Frames (comm/control/wire.h) as they travel: sealed, one way each, with a key that the handshake has made.
//
//   once         header of the sealed stream, 24 bytes
//   each frame   its header, sealed: 10 + 17 bytes; then, unless it is empty, its payload, sealed: length + 17
//
// Whoever listens on the way learns how long payloads are and when they are sent, and nothing else. A byte that is
// changed, added, left out, sent again or sent out of order is a CommError at the header or payload it is in; a length
// is read only from a header that verifies, and held to its limit before anything is allocated for it. After an error
// next() throws the same again: the connection is to be given up. One thread at a time.
#pragma once
#include "comm/control/encryption.h"
#include "comm/control/wire.h"

namespace lockstep::control {

class FrameSealer {
 public:
  explicit FrameSealer(const Secret& key) : sealer_(key), unsent_header_(sealer_.header()) {}
  void append(const Frame& frame, std::string& to);

 private:
  Sealer sealer_;
  std::string unsent_header_;
};

// Frames out of a stream of bytes that come in pieces of any size.
class FrameBuffer {
 public:
  FrameBuffer() = default;  // no frame can come out of it
  explicit FrameBuffer(const Secret& key) : key_(key) {}

  void feed(std::string_view bytes);
  std::optional<Frame> next();  // none: more bytes are needed

 private:
  std::optional<std::string_view> take(std::size_t count);
  std::string open(std::string_view sealed);

  std::optional<Secret> key_;          // until the stream's header has come
  std::optional<Opener> opener_;       // from then on
  std::optional<FrameHeader> header_;  // of the frame whose payload is to come
  std::string bytes_;
  std::size_t begin_ = 0;
  bool broken_ = false;
};

}  // namespace lockstep::control
