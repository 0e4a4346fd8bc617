#include "comm/apart/worker_links.h"

#include <fmt/format.h>

#include <algorithm>
#include <thread>
#include <utility>

namespace lockstep::apart {

namespace {

constexpr std::chrono::seconds kToConnect{5};  // an address may be of an earlier run, on a host that is gone
constexpr std::chrono::minutes kToAnswer{10};  // servers may be setting up, or saving

bool breaks(const std::shared_ptr<Link>& link) {
  if (!link) return false;
  link->advance();
  return link->broken();
}

}  // namespace

WorkerLinks::WorkerLinks(const ApartMesh& mesh, int rank, std::unique_ptr<Acceptor> acceptor, double deadline)
    : mesh_(mesh), rank_(rank), acceptor_(std::move(acceptor)), deadline_(deadline) {}

void WorkerLinks::accept_workers() {
  for (Acceptor::Accepted& one : acceptor_->accept()) {
    forget_broken();
    const int worker = one.introduction.rank / mesh_.line;
    const bool tickets = one.introduction.channel == Channel::tickets;
    const bool sense = one.introduction.rank >= 0 && one.introduction.rank < mesh_.first_server() &&
                       (tickets ? leads() && one.introduction.rank % mesh_.line == 0
                                : one.introduction.rank % mesh_.line == (rank_ - mesh_.first_server()) % mesh_.line);
    if (!sense) continue;
    Links& links = waiting_[worker][one.introduction.life];
    auto link = std::make_shared<Link>(std::move(one.socket), fmt::format("worker {}", worker), tickets);
    (tickets ? links.tickets : links.tensors) = std::move(link);
    if (tickets) joiners_.push_back({worker, one.introduction.life});
  }
}

std::vector<WorkerLinks::Joiner> WorkerLinks::joiners() {
  accept_workers();
  return std::exchange(joiners_, {});
}

bool WorkerLinks::take_in(const Joiner& joiner, double seconds) {
  const auto until = control::Clock::now() + control::seconds(seconds);
  // Whoever comes meanwhile may find these links broken, and then they are forgotten.
  auto& lives = waiting_[joiner.worker];
  const auto find = [&]() -> Links* {
    const auto at = lives.find(joiner.life);
    return at == lives.end() ? nullptr : &at->second;
  };
  const auto is_whole = [&](const Links* links) { return links && links->tensors && (!leads() || links->tickets); };
  for (accept_workers(); !is_whole(find()) && control::Clock::now() < until; accept_workers()) {
    if (leads() && !find()) break;  // it has asked for tickets, and is gone
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  Links* const links = find();
  const bool came = is_whole(links) && !breaks(links->tensors) && !breaks(links->tickets);
  if (came) there_[joiner.worker] = std::move(*links);
  lives.erase(joiner.life);
  forget_broken();
  return came;
}

void WorkerLinks::forget_broken() {
  for (auto& [worker, lives] : waiting_)
    std::erase_if(lives, [](const auto& life) { return breaks(life.second.tensors) || breaks(life.second.tickets); });
}

void WorkerLinks::let_go(int worker) {
  const auto at = there_.find(worker);
  if (at == there_.end()) return;
  for (const auto& link : {at->second.tensors, at->second.tickets})
    if (link) link->break_up(fmt::format("worker {} was let go", worker));
  there_.erase(at);
}

bool WorkerLinks::is_lost(int worker) {
  const auto at = there_.find(worker);
  return at == there_.end() || breaks(at->second.tensors) || breaks(at->second.tickets);
}

std::string WorkerLinks::why_lost(int worker) const {
  const auto at = there_.find(worker);
  if (at == there_.end()) return fmt::format("worker {} is not there", worker);
  for (const auto& link : {at->second.tensors, at->second.tickets})
    if (link && link->broken()) return link->why();
  return fmt::format("worker {} was lost by another server", worker);
}

std::shared_ptr<Link> WorkerLinks::to(int rank, Channel channel) {
  const auto at = there_.find(rank / mesh_.line);
  if (at == there_.end()) return nullptr;
  return channel == Channel::tickets ? at->second.tickets : at->second.tensors;
}

ServerLinks::ServerLinks(const Options& options) : options_(options) {
  for (const ServerAddress& server : options_.addresses)
    if ((server.rank - options_.mesh.first_server()) % options_.mesh.line == options_.rank % options_.mesh.line)
      introduced_[server.rank] = introduce(server, Channel::tensors);
}

control::Socket ServerLinks::introduce(const ServerAddress& server, Channel channel) const {
  return introduce_to(server, options_.keys, {.rank = options_.rank, .channel = channel, .life = options_.life},
                      options_.settings, control::Clock::now() + kToConnect);
}

std::shared_ptr<Link> ServerLinks::let_in(control::Socket socket, const ServerAddress& server, Channel channel) const {
  await_answer(socket, server, options_.keys, options_.rank, control::Clock::now() + kToAnswer);
  return std::make_shared<Link>(std::move(socket), fmt::format("the parameter server of rank {}", server.rank),
                                channel == Channel::tickets);
}

void ServerLinks::join() {
  if (options_.rank % options_.mesh.line == 0) {
    const ServerAddress& first = options_.addresses.front();
    tickets_ = let_in(introduce(first, Channel::tickets), first, Channel::tickets);
  }
  for (const ServerAddress& server : options_.addresses)
    if (const auto at = introduced_.find(server.rank); at != introduced_.end())
      tensors_[server.rank] = let_in(std::move(at->second), server, Channel::tensors);
  introduced_.clear();
}

std::shared_ptr<Link> ServerLinks::to(int rank, Channel channel) {
  if (channel == Channel::tickets) return tickets_;
  const auto at = tensors_.find(rank);
  return at == tensors_.end() ? nullptr : at->second;
}

}  // namespace lockstep::apart
