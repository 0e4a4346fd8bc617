// Messages and files between agents, over a sealed connection of their own (comm/control), so that megabytes of state
// never delay a heartbeat.
//
// A message is a JSON object of one frame. A file follows a message that says how many bytes it has, in frames of at
// most kPiece bytes. Everything read comes from a peer that has proven the token, and is still held to its limits.
//
// Blocking, up to a deadline for each frame, and until `stop`. Failure: CommError of one line; the connection is given
// up. One thread.
#pragma once
#include <atomic>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "comm/control/socket.h"

namespace lockstep {

class CopyChannel {
 public:
  static constexpr std::size_t kPiece = 64 << 10;
  static constexpr double kSeconds = 10;  // in which a frame goes or comes

  CopyChannel(control::TcpStream stream, const std::atomic<bool>& stop) : stream_(std::move(stream)), stop_(stop) {}

  void send(const nlohmann::json& message);
  nlohmann::json receive(double seconds = kSeconds);
  void send_file(const std::filesystem::path& file, std::int64_t bytes);
  // Writes over what is there. EnvironmentError where the memory is full; the rest is read, and the channel stays of
  // use.
  void receive_file(const std::filesystem::path& file, std::int64_t bytes);
  bool waits_for_more(double seconds);  // whether a frame begins to come in that time

 private:
  void send_payload(std::string payload);
  std::string receive_payload(double seconds);

  control::TcpStream stream_;
  const std::atomic<bool>& stop_;
  std::string read_;
};

// What comes from the wire and becomes part of a path: letters, digits, '-', '_' and '.', which it does not begin with.
bool is_copy_file_name(const std::string& name);

}  // namespace lockstep
