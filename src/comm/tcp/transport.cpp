#include "comm/tcp/transport.h"

#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace lockstep::tcp {

namespace {

constexpr std::uint64_t kWaker = ~std::uint64_t{0};

}  // namespace

Transport::~Transport() {
  stop_ = true;
  waker_.wake();
  if (thread_.joinable()) thread_.join();
  // Closing with bytes unread could take back the last that was sent, which may be why this rank has failed.
  for (const auto& peer : peers_)
    if (peer && !peer->gone) ::shutdown(peer->link.descriptor(), SHUT_WR);
  const auto until = waiting::deadline_in(0.1);
  for (const auto& peer : peers_) {
    if (!peer || peer->gone) continue;
    char unread[4096];
    ssize_t got = 1;
    while (got != 0 && waiting::Clock::now() < until) {
      got = ::recv(peer->link.descriptor(), unread, sizeof unread, MSG_DONTWAIT);
      if (got < 0 && errno != EAGAIN) break;
      pollfd one{peer->link.descriptor(), POLLIN, 0};
      if (got < 0) ::poll(&one, 1, 10);
    }
  }
}

void Transport::connect(const processes::RankHosts& hosts) {
  std::vector<control::Socket> sockets = connect_ranks(how_, hosts);
  epoll_ = control::Socket(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_) throw EnvironmentError(fmt::format("epoll_create1: {}", std::strerror(errno)));
  epoll_event waker{};
  waker.events = EPOLLIN;
  waker.data.u64 = kWaker;
  ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, waker_.descriptor(), &waker);
  for (int rank = 0; rank < size_; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    peers_.push_back(nullptr);
    if (!sockets[at]) continue;
    peers_[at] = std::make_unique<Peer>(
        Peer{Link(std::move(sockets[at])), fmt::format("rank {} (host {})", rank, hosts.name[at])});
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u64 = at;
    if (::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_ADD, peers_[at]->link.descriptor(), &event) != 0)
      throw EnvironmentError(fmt::format("epoll_ctl: {}", std::strerror(errno)));
  }
  thread_ = std::thread([this] { run(); });
}

void Transport::watch(int rank, Peer& peer, bool writes) {
  if (peer.writes == writes) return;
  peer.writes = writes;
  epoll_event event{};
  event.events = EPOLLIN | (writes ? static_cast<std::uint32_t>(EPOLLOUT) : 0u);
  event.data.u64 = static_cast<std::uint64_t>(rank);
  ::epoll_ctl(epoll_.descriptor(), EPOLL_CTL_MOD, peer.link.descriptor(), &event);
}

void Transport::lose(Peer& peer, const std::string& how) {
  if (peer.gone) return;
  peer.gone = true;
  const bool in_good_order = peer.link.heard_goodbye();
  peer.link.close();
  changed_.notify_all();
  if (in_good_order) return;
  notices_.push_back({0, {fmt::format("{} is gone: {}", peer.name, how)}});
  waker_.wake();
}

void Transport::work_on(int rank, const Work& work) {
  Peer* const peer = peers_.empty() ? nullptr : peers_[static_cast<std::size_t>(rank)].get();
  LOCKSTEP_CHECK(peer, "rank {} has no connection to rank {}", how_.rank, rank);
  if (peer->gone) return;
  Link& link = peer->link;
  std::string lost;
  try {
    const bool busy = link.wants_to_write();
    if (!work(link)) lost = "it has closed its connection";
    if (lost.empty() && !busy && link.wants_to_write()) link.write();
    if (lost.empty()) watch(rank, *peer, link.wants_to_write());
  } catch (const CommError& error) {
    lost = error.what();
  }
  finished_ |= link.take_finished();
  for (FailureNotice& notice : link.take_notices()) notices_.push_back(std::move(notice));  // before what ended it
  if (link.heard_goodbye()) changed_.notify_all();
  if (!lost.empty()) lose(*peer, lost);
}

std::shared_ptr<Completion> Transport::post(std::vector<Transfer> transfers, std::shared_ptr<void> holds) {
  auto completion = std::make_shared<Completion>();
  completion->left = static_cast<int>(transfers.size());
  completion->holds = std::move(holds);
  const Lock lock(mutex_);
  for (std::size_t i = 0; i < transfers.size();) {
    const int peer = transfers[i].peer;
    work_on(peer, [&](Link& link) {
      for (; i < transfers.size() && transfers[i].peer == peer; ++i)
        if (transfers[i].way == Transfer::Way::send)
          link.send(transfers[i], completion);
        else
          link.receive(transfers[i], completion);
      return true;
    });
    while (i < transfers.size() && transfers[i].peer == peer) ++i;  // to one that is gone
  }
  if (std::exchange(finished_, false)) wakeup_->notify();
  return completion;
}

void Transport::tell(const std::vector<int>& ranks, const FailureNotice& notice) {
  const Lock lock(mutex_);
  if (peers_.empty()) return;
  for (const int rank : ranks)
    work_on(rank, [&](Link& link) {
      link.tell(notice);
      return true;
    });
  if (std::exchange(finished_, false)) wakeup_->notify();
}

std::shared_ptr<Completion> Transport::start_native(const Message&, bool, const std::vector<int>&, std::uint64_t) {
  LOCKSTEP_CHECK(false, "TCP has no collectives of its own");
  return nullptr;
}

bool Transport::idle() {
  const Lock lock(mutex_);
  for (const auto& peer : peers_)
    if (peer && !peer->gone && !peer->link.idle()) return false;
  return true;
}

void Transport::handle(int rank, std::uint32_t events) {
  const Lock lock(mutex_);
  work_on(rank, [&](Link& link) {
    if (events & EPOLLOUT) link.write();
    return (events & ~static_cast<std::uint32_t>(EPOLLOUT)) == 0 || link.read();
  });
}

void Transport::run() {
  std::vector<epoll_event> events(64);
  while (!stop_) {
    std::vector<FailureNotice> notices;
    bool finished = false;
    try {
      const int count = ::epoll_wait(epoll_.descriptor(), events.data(), static_cast<int>(events.size()), -1);
      for (int i = 0; i < count; ++i) {
        const epoll_event& event = events[static_cast<std::size_t>(i)];
        if (event.data.u64 == kWaker)
          waker_.clear();
        else
          handle(static_cast<int>(event.data.u64), event.events);
      }
      const Lock lock(mutex_);
      notices = std::exchange(notices_, {});
      finished = std::exchange(finished_, false);
    } catch (const std::exception& error) {
      notices.push_back({0, {fmt::format("rank {}: {}", how_.rank, error.what())}});
      stop_ = true;
    }
    if (finished) wakeup_->notify();
    for (const FailureNotice& notice : notices) on_notice_(notice);
  }
}

void Transport::finalize() {
  Lock lock(mutex_);
  for (int rank = 0; rank < size_ && !peers_.empty(); ++rank)
    if (peers_[static_cast<std::size_t>(rank)])
      work_on(rank, [](Link& link) {
        link.say_goodbye();
        return true;
      });
  changed_.wait(lock, [&] {
    for (const auto& peer : peers_)
      if (peer && !peer->gone && (!peer->link.heard_goodbye() || peer->link.wants_to_write())) return false;
    return true;
  });
}

}  // namespace lockstep::tcp
