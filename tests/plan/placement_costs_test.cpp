// What crosses nodes, against every pair of ranks that exchange in a real step on `meta`; and the warnings.
#include "plan/placement_costs.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "plan/placement_warning.h"
#include "spec/layout/layout_toml.h"
#include "support/program.h"
#include "train/training_run.h"

namespace lockstep::tests {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

RunSpec tiny_spec(const std::string& layout) {
  RunSpec spec;
  spec.model.layers = 6;
  spec.model.width = 32;
  spec.model.heads = 4;
  spec.model.kv_heads = 2;
  spec.model.head_width = 8;
  spec.model.ffn_width = 64;
  spec.model.vocabulary = 256;
  spec.model.max_positions = 32;
  spec.data.synthetic = SyntheticSpec{};
  spec.data.seq = 32;
  spec.train.global_batch = 48;
  spec.train.eval_every = 0;
  spec.layout = parse_layout(layout);
  return spec;
}

// Bytes between ranks of the world, by sender and receiver; what a library's ring carries is kept apart, by the nodes
// of its group.
struct SentByPairs {
  std::map<std::pair<int, int>, double> pairs;
  std::vector<std::pair<std::vector<int>, std::pair<int, double>>> rings;  // members, sender, bytes
};

// A rank of a world on `meta` that notes to whom its tensors go when every rank sends for itself.
class PairsCommunicator final : public Communicator {
 public:
  PairsCommunicator(int rank, std::vector<int> world, const std::string& name, SentByPairs& sent)
      : Communicator(rank, static_cast<int>(world.size()), name, Device::meta), world_(std::move(world)), sent_(sent) {}

  Started start(const Message& message) override {
    if (message.op == CommOp::barrier || message.op == CommOp::recv) return std::make_unique<NothingPending>();
    const DType dtype = dtype_of_message(message);
    if (is_number(dtype, count_of(message, size()))) return std::make_unique<NothingPending>();
    const double bytes = static_cast<double>(traffic_of(message, rank(), size()).sent * size_of(dtype));
    const int me = world_[static_cast<std::size_t>(rank())];
    if (message.op == CommOp::send)
      sent_.pairs[{me, world_[static_cast<std::size_t>(message.peer)]}] += bytes;
    else if (message.op == CommOp::all_gather || (reduces(message.op) && message.algorithm == Algorithm::native))
      sent_.rings.push_back({world_, {me, bytes}});
    else
      for (const int other : world_)
        if (other != me) sent_.pairs[{me, other}] += bytes / (size() - 1);
    return std::make_unique<NothingPending>();
  }
  std::unique_ptr<Communicator> split(const std::function<Place(int)>& place, const std::string& name) override {
    if (place(rank()).color < 0) return nullptr;
    std::vector<int> world;
    int mine = 0;
    for (const int member : members_of(rank(), size(), place)) {
      if (member == rank()) mine = static_cast<int>(world.size());
      world.push_back(world_[static_cast<std::size_t>(member)]);
    }
    return std::make_unique<PairsCommunicator>(mine, world, name, sent_);
  }

 private:
  std::vector<int> world_;
  SentByPairs& sent_;
};

SentByPairs sent_in_a_step(const RunSpec& spec) {
  SentByPairs sent;
  std::vector<int> world(static_cast<std::size_t>(spec.layout.ranks()));
  std::iota(world.begin(), world.end(), 0);
  for (const int rank : world) {
    SentByPairs before;
    PairsCommunicator ranks(rank, world, "world", before);
    TrainingRun run(spec, Device::meta, "", {.ranks = &ranks});
    run.init_weights();
    before = {};
    run.step(0, 1e-3);
    sent.pairs.insert(before.pairs.begin(), before.pairs.end());
    sent.rings.insert(sent.rings.end(), before.rings.begin(), before.rings.end());
  }
  return sent;
}

std::vector<double> crossing_by_pairs(const SentByPairs& sent, const NodeMap& nodes) {
  std::vector<double> by_rank(static_cast<std::size_t>(nodes.ranks()));
  for (const auto& [pair, bytes] : sent.pairs)
    if (nodes.node_of(pair.first) != nodes.node_of(pair.second)) by_rank[static_cast<std::size_t>(pair.first)] += bytes;
  for (const auto& [members, of] : sent.rings) {
    const auto together = std::ranges::count_if(
        members, [&, node = nodes.node_of(of.first)](int rank) { return nodes.node_of(rank) == node; });
    if (together < std::ssize(members))
      by_rank[static_cast<std::size_t>(of.first)] += of.second / static_cast<double>(together);
  }
  return by_rank;
}

class CrossingOfMesh : public ::testing::TestWithParam<const char*> {};

TEST_P(CrossingOfMesh, IsWhatEveryPairOfRanksExchanges) {
  const RunSpec spec = tiny_spec(GetParam());
  const std::int64_t ranks = spec.layout.ranks();
  const std::vector<Plan> stages = plan_stages(spec);
  const SentByPairs sent = sent_in_a_step(spec);
  std::vector<NodeMap> maps;
  for (std::int64_t per_node = 1; per_node <= ranks; ++per_node) maps.push_back(NodeMap::consecutive(ranks, per_node));
  for (const std::int64_t hosts : {2, 3}) {
    std::vector<std::string> names;
    for (std::int64_t rank = 0; rank < ranks; ++rank) names.push_back(std::to_string(rank % hosts));
    maps.push_back(NodeMap::of_hosts(names));
  }
  for (const NodeMap& nodes : maps) {
    const std::vector<double> by_rank = crossing_by_pairs(sent, nodes);
    std::vector<double> by_node(static_cast<std::size_t>(nodes.nodes()));
    for (std::int64_t rank = 0; rank < ranks; ++rank)
      by_node[static_cast<std::size_t>(nodes.node_of(rank))] += by_rank[static_cast<std::size_t>(rank)];
    const PlacementCosts costs = placement_costs(spec, stages, nodes, Route::direct);
    const double total = std::accumulate(by_rank.begin(), by_rank.end(), 0.0);
    SCOPED_TRACE(fmt::format("{} nodes of {}", nodes.nodes(), nodes.per_node()));
    EXPECT_NEAR(costs.all.total, total, 1e-3 * total);
    EXPECT_NEAR(costs.all.most_rank, *std::ranges::max_element(by_rank), 1e-3 * total);
    EXPECT_NEAR(costs.all.most_node, *std::ranges::max_element(by_node), 1e-3 * total);
    EXPECT_EQ(total > 0, nodes.nodes() > 1);
    double of_axes = 0, of_kinds = 0;
    for (const Crossing& of : costs.axes) of_axes += of.total;
    for (const PlacementCosts::Kind& kind : costs.kinds) of_kinds += kind.crossing.total;
    EXPECT_NEAR(of_axes, costs.all.total, 1e-6 * total);
    EXPECT_NEAR(of_kinds, costs.all.total, 1e-6 * total);
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, CrossingOfMesh,
                         ::testing::Values("dp=4", "dp=4,reduce=native", "tp=4", "dp=2,tp=2", "tp=2,dp=4,sp=off",
                                           "pp=4,micro=4", "pp=2,tp=2,schedule=interleaved,chunks=2,micro=4",
                                           "pp=3,schedule=interleaved,chunks=2,micro=3",
                                           "pp=2,dp=2,schedule=zb-v,micro=4", "cp=4", "cp=4,cp_kind=ulysses,tp=1",
                                           "cp=4,cp_kind=2x2,dp=2", "cp=2,tp=2,dp=2,zero=3", "dp=8,zero=3,shard=4",
                                           "cp=2,dp=4,zero=2,shard=2", "pp=2,dp=2,tp=2,zero=1,micro=2"));

double of_nodes(const std::vector<double>& members, const std::vector<std::int32_t>& labels, std::int32_t node) {
  double sum = 0;
  for (std::size_t i = 0; i < members.size(); ++i) sum += labels[i] == node ? members[i] : 0;
  return sum;
}

// By hand, from comm/processes: n elements, what leaves each node in units of n.
TEST(CrossingByLeaders, IsOneSumPerNodeWhereTheTreeAllowsIt) {
  const auto crossing = [](CommOp op, ReduceKind reduce, DType dtype, const std::vector<std::int32_t>& labels) {
    const double n = static_cast<double>(labels.size());
    const double sent = (n - 1) / n * (op == CommOp::all_reduce ? 2 : 1);
    const std::vector<double> of = crossing_of_call(op, dtype, reduce, sent, sent, labels, Route::leaders);
    return std::pair(of_nodes(of, labels, 0), of_nodes(of, labels, 1));
  };
  using Pair = std::pair<double, double>;
  const auto f32 = DType::f32;
  const ReduceKind canonical = ReduceKind::canonical;
  // A sum of two ranks for each of two pieces, and two sums back.
  EXPECT_EQ(crossing(CommOp::reduce_scatter, canonical, f32, {0, 0, 1, 1}), Pair(0.5, 0.5));
  EXPECT_EQ(crossing(CommOp::all_gather, canonical, f32, {0, 0, 1, 1}), Pair(0.5, 0.5));
  EXPECT_EQ(crossing(CommOp::all_reduce, canonical, f32, {0, 0, 1, 1}), Pair(1, 1));
  // Sums of several ranks are wide.
  EXPECT_EQ(crossing(CommOp::reduce_scatter, canonical, DType::bf16, {0, 0, 1, 1}), Pair(1, 1));
  // In turns no two ranks can be summed first.
  EXPECT_EQ(crossing(CommOp::reduce_scatter, canonical, f32, {0, 1, 0, 1}), Pair(1, 1));
  EXPECT_EQ(crossing(CommOp::reduce_scatter, canonical, DType::bf16, {0, 1, 0, 1}), Pair(1, 1));
  // Ranks 0 and 1 first, then 2 alone, for the piece of 3; and 3 alone for three pieces.
  EXPECT_EQ(crossing(CommOp::reduce_scatter, canonical, f32, {0, 0, 0, 1}), Pair(0.5, 0.75));
  // Round a ring the sum for 1 begins with 2 and 3, and that for 3 with 0 and 1; elsewhere ranks are added one by one.
  EXPECT_EQ(crossing(CommOp::reduce_scatter, ReduceKind::ring, f32, {0, 0, 1, 1}), Pair(0.75, 0.75));
  // Recursive halving adds ranks 0 and 2, and 1 and 3.
  EXPECT_EQ(crossing(CommOp::reduce_scatter, ReduceKind::tree, f32, {0, 0, 1, 1}), Pair(1, 1));
  EXPECT_EQ(crossing(CommOp::reduce_scatter, ReduceKind::tree, f32, {0, 1, 0, 1}), Pair(0.5, 0.5));
}

std::string warning_of(const RunSpec& spec, const NodeMap& nodes, std::optional<NetworkRate> rate = {}) {
  const PlacementCosts costs = placement_costs(spec, plan_stages(spec), nodes, Route::direct);
  const std::vector<std::string> lines = placement_warnings(spec, costs, nodes, rate);
  EXPECT_LE(lines.size(), 1u);
  return lines.empty() ? "" : lines.front();
}

TEST(PlacementWarning, NamesBytesSecondsAndWhatWouldDo) {
  const RunSpec spec = tiny_spec("dp=2,tp=4");
  const NodeMap nodes = NodeMap::consecutive(8, 2);
  const Crossing tp = placement_costs(spec, plan_stages(spec), nodes, Route::direct).of(MeshAxis::tp);
  const std::string line = warning_of(spec, nodes, NetworkRate{.bytes_per_second = tp.most_rank / 0.25});
  EXPECT_THAT(line, StartsWith("tp=4 crosses nodes of 2 ranks: "));
  EXPECT_THAT(line, HasSubstr(" per step and rank leave the node, about 0.25 s at "));
  EXPECT_THAT(line, EndsWith("; use tp=2 with dp=4, or nodes with at least 4 ranks"));
  EXPECT_THAT(warning_of(spec, nodes), HasSubstr(" per step and rank leave the node; use "));
}

TEST(PlacementWarning, IsSilentWhereOnlyPipelinesAndReplicasCross) {
  EXPECT_EQ(warning_of(tiny_spec("dp=2,tp=2,pp=2,micro=2"), NodeMap::consecutive(8, 2)), "");
  EXPECT_EQ(warning_of(tiny_spec("dp=2,cp=2,tp=2"), NodeMap::consecutive(8, 4)), "");
  EXPECT_EQ(warning_of(tiny_spec("dp=8"), NodeMap::consecutive(8, 1)), "");
}

TEST(PlacementWarning, OfRanksInTurnsIsTheirOrder) {
  const std::vector<std::string> turns{"a", "b", "a", "b"};
  EXPECT_THAT(warning_of(tiny_spec("dp=2,tp=2"), NodeMap::of_hosts(turns)), EndsWith("mpirun --map-by slot does"));
  EXPECT_THAT(warning_of(tiny_spec("tp=4"), NodeMap::of_hosts(turns)),
              HasSubstr("mpirun --map-by slot does, and use tp=2 with dp=2"));
}

TEST(PlacementWarning, OfUnequalNodesIsEquallyManyRanks) {
  const std::vector<std::string> hosts{"a", "a", "a", "b"};
  const std::string line = warning_of(tiny_spec("dp=2,tp=2"), NodeMap::of_hosts(hosts));
  EXPECT_THAT(line, StartsWith("tp=2 crosses nodes of 1 to 3 ranks: "));
  EXPECT_THAT(line, HasSubstr("start 2 ranks on each of the 2 nodes"));
}

TEST(PlacementWarning, OfContextParallelRanksComesAfterThatOfTensorParallelOnes) {
  EXPECT_THAT(warning_of(tiny_spec("cp=4,tp=2"), NodeMap::consecutive(8, 2)),
              AllOf(StartsWith("cp=4 crosses nodes of 2 ranks"), HasSubstr("use cp=1 with dp=4")));
  EXPECT_THAT(warning_of(tiny_spec("cp=2,tp=4"), NodeMap::consecutive(8, 2)), StartsWith("tp=4 "));
}

// What it proposes is valid, and stays inside nodes.
TEST(PlacementWarning, ProposesALayoutThatStopsIt) {
  for (const char* layout : {"dp=2,tp=4", "tp=4,cp=2", "cp=4,tp=2", "pp=2,tp=4,micro=2"}) {
    RunSpec spec = tiny_spec(layout);
    for (const std::int64_t per_node : {1, 2, 3, 4}) {
      const NodeMap nodes = NodeMap::consecutive(spec.layout.ranks(), per_node);
      RunSpec next = spec;
      for (int round = 0; round < 3; ++round) {
        const std::string line = warning_of(next, nodes);
        const std::size_t at = line.find("; use ");
        if (at == std::string::npos || line.find(" with ", at) == std::string::npos) break;
        std::string key, other;
        std::istringstream words(line.substr(at + 6));
        words >> key >> other >> other;
        if (key == "nodes") break;
        if (other.back() == ',') other.pop_back();
        std::int64_t LayoutSpec::*const changed = key.starts_with("tp") ? &LayoutSpec::tp : &LayoutSpec::cp;
        next.layout.*changed = std::stoll(key.substr(3));
        next.layout.*(other.starts_with("dp") ? &LayoutSpec::dp : &LayoutSpec::pp) = std::stoll(other.substr(3));
        if (next.layout.tp == 1) next.layout.sp = Switch::off;
        ASSERT_EQ(next.layout.ranks(), spec.layout.ranks()) << line;
      }
      if (per_node == 3) continue;  // divides nothing here: tp=1 is all that would do
      EXPECT_EQ(warning_of(next, nodes), "") << layout << " on nodes of " << per_node;
    }
  }
}

TEST(PlanCommand, ShowsWhatCrossesNodes) {
  const std::vector<std::string> run{"plan",      "--set", "model.preset=llama-1m", "--layout",
                                     "dp=2,tp=4", "--set", "train.global_batch=8",  "--per-node",
                                     "2"};
  const Outcome text = run_program(run);
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("what crosses 4 nodes of 2 ranks, per step"));
  EXPECT_THAT(text.out, HasSubstr("tp=4 crosses nodes of 2 ranks: "));
  std::vector<std::string> as_json = run;
  as_json.push_back("--json");
  const Outcome json = run_program(as_json);
  ASSERT_EQ(json.code, 0) << json.err;
  const auto placement = nlohmann::json::parse(json.out)["placement"];
  EXPECT_EQ(placement["nodes"], 4);
  EXPECT_EQ(placement["warnings"].size(), 1u);
  EXPECT_GT(placement["axes"]["tp"]["rank_most"], 0);
  EXPECT_EQ(placement["axes"]["pp"]["all"], 0);
  double sum = 0;
  for (const auto& group : placement["groups"]) sum += group["crossing_bytes"]["all"].get<double>();
  EXPECT_NEAR(sum, placement["crossing_bytes"]["all"].get<double>(), 1e-6 * sum);
}

}  // namespace
}  // namespace lockstep::tests
