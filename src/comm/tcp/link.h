// One connection between two ranks of different hosts: messages by tag, over one stream of bytes.
//
// A frame is a head of 16 bytes and what it announces. Small messages (kEager) are sent at once, and one that comes
// before its receive is kept in a buffer, of which there are a bounded number. A larger one is sent when the receiver
// has said that its receive is there ("ready"): so it goes from the sender's memory to the receiver's and through no
// buffer of this program, and never stops what is behind it. Messages of one tag keep their order.
//
// Whatever comes is checked before it is used: kinds, sizes, sizes against those of the receives. What is wrong with
// it, or with the connection, is thrown as CommError, after which nothing here may be called. One thread at a time;
// nothing waits.
#pragma once
#include <array>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "comm/control/socket.h"
#include "comm/processes/transport.h"

namespace lockstep::tcp {

using processes::Completion;
using processes::FailureNotice;
using processes::Transfer;

class Link {
 public:
  static constexpr std::int64_t kEager = 16 << 10, kMostMessage = std::int64_t{1} << 30;
  static constexpr std::size_t kMostEarly = 1 << 16, kMostEarlyBytes = 64 << 20;  // that came before their receives

  explicit Link(control::Socket socket) : socket_(std::move(socket)) {}

  // What these queue goes with the next write().
  void send(const Transfer& transfer, const std::shared_ptr<Completion>& completion);
  void receive(const Transfer& transfer, const std::shared_ptr<Completion>& completion);
  void tell(const FailureNotice& notice);
  void say_goodbye();  // nothing may follow it

  void write();  // what the system takes now; where it takes none any more, read() says why
  bool read();   // what has come, up to some MiB; false: the other end has closed

  int descriptor() const { return socket_.descriptor(); }
  bool wants_to_write() const { return !out_.empty() && !broken_; }
  bool idle() const { return out_.empty() && sends_.empty() && posted_.empty() && !into_; }
  bool heard_goodbye() const { return heard_goodbye_; }
  bool take_finished() { return std::exchange(finished_, false); }  // whether a completion is done since it was asked
  std::vector<FailureNotice> take_notices() { return std::exchange(notices_, {}); }
  void close() { socket_ = control::Socket(); }

 private:
  enum class Kind : std::uint32_t { message = 1, ready, notice, goodbye };
  struct Head {
    Kind kind;
    std::int32_t tag;
    std::uint64_t bytes;
  };
  static_assert(sizeof(Head) == 16);
  struct Outgoing {
    Head head;
    const char* data = nullptr;
    std::shared_ptr<Completion> completion = {};
    std::shared_ptr<std::string> own = {};  // where the data is in no memory of a transfer
    std::size_t sent = 0;                   // of head and data
  };
  struct Sends {  // of one tag: a large one that nobody is ready for, and what must not overtake it
    std::deque<Outgoing> waiting = {};
    std::int64_t ready = 0;  // receives that large sends may go to
  };
  struct Posted {
    char* data;
    std::int64_t bytes;
    std::shared_ptr<Completion> completion;
  };
  using Early = std::vector<char>;

  void release(int tag);
  void finish(const std::shared_ptr<Completion>& completion);
  void take_staged();
  void begin(const Head& head);
  void end();  // of what has come
  void deliver(const Early& early, const Posted& posted);

  control::Socket socket_;
  std::deque<Outgoing> out_;
  std::map<int, Sends> sends_;

  std::map<int, std::deque<Posted>> posted_;
  std::map<int, std::deque<Early>> early_;
  std::size_t early_count_ = 0, early_bytes_ = 0;
  // What is coming in: `left_` bytes of it are still to come, to into_.
  Head head_ = {};
  char* into_ = nullptr;
  std::size_t left_ = 0;
  Posted coming_ = {};  // its receive; without one it is kept in coming_early_
  Early coming_early_;
  std::array<char, 16 << 10> staged_ = {};
  std::size_t staged_bytes_ = 0;

  std::vector<FailureNotice> notices_;
  bool finished_ = false, heard_goodbye_ = false;
  bool broken_ = false;  // nothing can be written any more
};

}  // namespace lockstep::tcp
