#include "comm/tcp/link.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace lockstep::tcp {

namespace {

constexpr std::size_t kMostAtOnce = 2 << 20;  // read or written, so that other connections have their turn
constexpr std::size_t kMostNotice = 4096;
constexpr int kFramesTogether = 16;

bool is_large(std::uint64_t bytes) { return bytes > static_cast<std::uint64_t>(Link::kEager); }

[[noreturn]] void refuse_frame(const std::string& what) { throw CommError(what); }

bool is_for_later(int error) { return error == EAGAIN || error == EWOULDBLOCK || error == EINTR; }

}  // namespace

void Link::finish(const std::shared_ptr<Completion>& completion) {
  if (completion) finished_ |= completion->left.fetch_sub(1, std::memory_order_acq_rel) == 1;
}

void Link::send(const Transfer& t, const std::shared_ptr<Completion>& completion) {
  const Head head{Kind::message, t.tag, static_cast<std::uint64_t>(t.bytes)};
  sends_[t.tag].waiting.push_back({head, static_cast<const char*>(t.data), completion});
  release(t.tag);
}

void Link::release(int tag) {
  const auto at = sends_.find(tag);
  auto& [waiting, ready] = at->second;
  while (!waiting.empty()) {
    const bool large = is_large(waiting.front().head.bytes);
    if (large && ready == 0) return;
    if (large) --ready;
    out_.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
  if (ready == 0) sends_.erase(at);
}

void Link::deliver(const Early& early, const Posted& posted) {
  if (std::ssize(early) != posted.bytes)
    refuse_frame(fmt::format("it has sent {} bytes where {} are received", early.size(), posted.bytes));
  std::copy(early.begin(), early.end(), posted.data);
  finish(posted.completion);
}

void Link::receive(const Transfer& t, const std::shared_ptr<Completion>& completion) {
  const Posted posted{static_cast<char*>(t.data), t.bytes, completion};
  if (const auto early = early_.find(t.tag); early != early_.end()) {
    deliver(early->second.front(), posted);
    --early_count_;
    early_bytes_ -= early->second.front().size();
    early->second.pop_front();
    if (early->second.empty()) early_.erase(early);
    return;
  }
  posted_[t.tag].push_back(posted);
  if (is_large(static_cast<std::uint64_t>(t.bytes)))
    out_.push_back({.head = {Kind::ready, t.tag, static_cast<std::uint64_t>(t.bytes)}});
}

void Link::tell(const FailureNotice& notice) {
  const CommFailure& failure = notice.failure;
  std::string bytes(reinterpret_cast<const char*>(&notice.group), sizeof notice.group);
  bytes += static_cast<char>(failure.secondary);
  bytes += failure.what.substr(0, kMostNotice - bytes.size());
  const auto own = std::make_shared<std::string>(std::move(bytes));
  out_.push_back({.head = {Kind::notice, 0, own->size()}, .data = own->data(), .own = own});
}

void Link::say_goodbye() { out_.push_back({.head = {Kind::goodbye, 0, 0}}); }

void Link::write() {
  for (std::size_t total = 0; !out_.empty() && !broken_ && total < kMostAtOnce;) {
    iovec parts[2 * kFramesTogether];
    int count = 0;
    const auto add = [&](const void* data, std::size_t bytes, std::size_t& skip) {
      const std::size_t skipped = std::min(skip, bytes);
      skip -= skipped;
      if (bytes > skipped)
        parts[count++] = {const_cast<char*>(static_cast<const char*>(data)) + skipped, bytes - skipped};
    };
    for (auto frame = out_.begin(); frame != out_.end() && count + 2 <= 2 * kFramesTogether; ++frame) {
      std::size_t skip = frame->sent;
      add(&frame->head, sizeof(Head), skip);
      if (frame->data) add(frame->data, frame->head.bytes, skip);
    }
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t wrote = ::sendmsg(descriptor(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (wrote < 0 && is_for_later(errno)) return;
    if (wrote < 0) {  // read() has the last that came, and says what ended it
      broken_ = true;
      out_.clear();
      return;
    }
    total += static_cast<std::size_t>(wrote);
    for (auto left = static_cast<std::size_t>(wrote); left > 0;) {
      Outgoing& frame = out_.front();
      const std::size_t whole = sizeof(Head) + (frame.data ? frame.head.bytes : 0);
      const std::size_t now = std::min(left, whole - frame.sent);
      frame.sent += now;
      left -= now;
      if (frame.sent < whole) break;
      finish(frame.completion);
      out_.pop_front();
    }
  }
}

bool Link::read() {
  for (std::size_t total = 0; total < kMostAtOnce;) {
    iovec parts[2] = {{into_, left_}, {staged_.data() + staged_bytes_, staged_.size() - staged_bytes_}};
    msghdr message = {};
    message.msg_iov = into_ ? parts : parts + 1;
    message.msg_iovlen = into_ ? 2 : 1;
    const ssize_t got = ::recvmsg(descriptor(), &message, MSG_DONTWAIT);
    if (got < 0 && is_for_later(errno)) return true;
    if (got < 0) throw CommError(std::strerror(errno));
    if (got == 0) return false;
    total += static_cast<std::size_t>(got);
    const std::size_t direct = into_ ? std::min(left_, static_cast<std::size_t>(got)) : 0;
    staged_bytes_ += static_cast<std::size_t>(got) - direct;
    if (into_) {
      into_ += direct;
      left_ -= direct;
      if (left_ == 0) end();
    }
    take_staged();
  }
  return true;
}

// Afterwards either all that was staged is taken, or what is left of it is less than a head.
void Link::take_staged() {
  std::size_t at = 0;
  while (at < staged_bytes_) {
    if (into_) {
      const std::size_t now = std::min(left_, staged_bytes_ - at);
      std::memcpy(into_, staged_.data() + at, now);
      at += now;
      into_ += now;
      left_ -= now;
      if (left_ == 0) end();
      continue;
    }
    if (staged_bytes_ - at < sizeof(Head)) break;
    Head head;
    std::memcpy(&head, staged_.data() + at, sizeof head);
    at += sizeof head;
    begin(head);
  }
  std::memmove(staged_.data(), staged_.data() + at, staged_bytes_ - at);
  staged_bytes_ -= at;
}

void Link::begin(const Head& head) {
  if (heard_goodbye_) refuse_frame("it has sent more after its end");
  head_ = head;
  left_ = head.bytes;
  switch (head.kind) {
    case Kind::message: {
      if (head.bytes > static_cast<std::uint64_t>(kMostMessage))
        refuse_frame(fmt::format("it announces a message of {} bytes", head.bytes));
      if (const auto posted = posted_.find(head.tag); posted != posted_.end()) {
        coming_ = std::move(posted->second.front());
        posted->second.pop_front();
        if (posted->second.empty()) posted_.erase(posted);
        if (coming_.bytes != static_cast<std::int64_t>(head.bytes))
          refuse_frame(fmt::format("it has sent {} bytes where {} are received", head.bytes, coming_.bytes));
        into_ = coming_.data;
      } else {
        if (is_large(head.bytes)) refuse_frame(fmt::format("it has sent {} bytes that nobody receives", head.bytes));
        if (++early_count_ > kMostEarly || (early_bytes_ += head.bytes) > kMostEarlyBytes)
          refuse_frame(fmt::format("it has sent {} messages that nobody receives", early_count_));
        coming_early_.resize(std::max<std::size_t>(1, head.bytes));
        into_ = coming_early_.data();
      }
      if (left_ == 0) end();
      return;
    }
    case Kind::ready:
      if (head.bytes > static_cast<std::uint64_t>(kMostMessage) || !is_large(head.bytes))
        refuse_frame(fmt::format("it is ready for {} bytes", head.bytes));
      ++sends_[head.tag].ready;
      return release(head.tag);
    case Kind::notice:
      if (head.bytes < 9 || head.bytes > kMostNotice) refuse_frame(fmt::format("a notice of {} bytes", head.bytes));
      coming_early_.resize(head.bytes);
      into_ = coming_early_.data();
      return;
    case Kind::goodbye:
      if (head.bytes != 0) refuse_frame("an end with more in it");
      heard_goodbye_ = true;
      return;
  }
  refuse_frame(fmt::format("a frame of kind {}", static_cast<std::uint32_t>(head.kind)));
}

void Link::end() {
  into_ = nullptr;
  Early early = std::exchange(coming_early_, {});
  if (head_.kind == Kind::notice) {
    FailureNotice notice;
    std::memcpy(&notice.group, early.data(), sizeof notice.group);
    notice.failure = {std::string(early.begin() + 9, early.end()), early[8] != 0};
    notices_.push_back(std::move(notice));
    return;
  }
  if (early.empty()) return finish(std::exchange(coming_, {}).completion);
  early.resize(head_.bytes);  // of none at all, one was kept
  // Its receive may have been posted while it came.
  const auto posted = posted_.find(head_.tag);
  if (posted == posted_.end()) {
    early_[head_.tag].push_back(std::move(early));
    return;
  }
  --early_count_;
  early_bytes_ -= early.size();
  deliver(early, posted->second.front());
  posted->second.pop_front();
  if (posted->second.empty()) posted_.erase(posted);
}

}  // namespace lockstep::tcp
