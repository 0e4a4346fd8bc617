// What comes over a connection between ranks of two hosts: before its hello is right nothing is read out of it, and
// whatever follows is taken, or is a CommError of one line, with memory in its bounds. The input's first byte chooses;
// its low bits also say what receives are there, and after how many bytes each.
#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "comm/error.h"
#include "comm/tcp/hello.h"
#include "comm/tcp/link.h"

namespace {

using namespace lockstep;

void require(bool claim) {
  if (!claim) std::abort();
}

template <class Body>
void in_one_line(const Body& body) {
  try {
    body();
  } catch (const CommError& error) {
    const std::string text = error.what();
    require(!text.empty() && text.find('\n') == std::string::npos && text.size() < 1000);
  }
}

void as_hello(std::string_view bytes) {
  const std::string key(tcp::kKeyBytes, 'k');
  const auto ends = tcp::check_hello(bytes, key);
  require(!ends || (bytes.size() == tcp::kHelloBytes && bytes == tcp::hello_with(key, *ends)));
  std::string changed = tcp::hello_with(key, {.from = 1, .to = 0});
  bool same = true;
  for (std::size_t i = 0; i < std::min(changed.size() - 8, bytes.size()); ++i) {
    changed[i] = static_cast<char>(changed[i] ^ bytes[i]);
    same = same && bytes[i] == 0;
  }
  require(tcp::check_hello(changed, key).has_value() == same);
}

void as_keys(std::string_view text) {
  in_one_line([&] { require(tcp::WorldKeys::parse(std::string(text)).text() == text); });
}

void as_frames(unsigned choice, std::string_view bytes) {
  int ends[2];
  require(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  const control::Socket far(ends[1]);
  tcp::Link link{control::Socket(ends[0])};
  std::array<std::array<char, 64>, 3> rows = {};
  const auto completion = std::make_shared<tcp::Completion>();
  completion->left = 1 << 20;
  const auto to = [&](int tag) {
    return tcp::Transfer{.way = tcp::Transfer::Way::receive,
                         .data = rows[static_cast<std::size_t>(tag)].data(),
                         .bytes = 8 << tag,
                         .peer = 0,
                         .tag = tag};
  };
  in_one_line([&] {
    for (int i = 0; i < 3; ++i)
      if (choice >> i & 1) link.receive(to(i), completion);
    if (choice & 8)
      link.send({.way = tcp::Transfer::Way::send, .data = rows[0].data(), .bytes = 8, .peer = 0, .tag = 1}, completion);
    const std::size_t piece = choice & 16 ? 7 : 4096;
    for (bool open = true; open && !bytes.empty();) {
      const ssize_t wrote = ::send(far.descriptor(), bytes.data(), std::min(piece, bytes.size()), MSG_NOSIGNAL);
      if (wrote <= 0) break;
      bytes.remove_prefix(static_cast<std::size_t>(wrote));
      open = link.read();
      link.write();
    }
    for (int i = 0; i < 3; ++i)
      if (!(choice >> i & 1)) link.receive(to(i), completion);
    link.read();
  });
  for (const tcp::FailureNotice& notice : link.take_notices()) require(notice.failure.what.size() < 4096);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  switch (data[0] >> 5) {
    case 0:
      as_hello(bytes);
      break;
    case 1:
      as_keys(bytes);
      break;
    default:
      as_frames(data[0], bytes);
      break;
  }
  return 0;
}
