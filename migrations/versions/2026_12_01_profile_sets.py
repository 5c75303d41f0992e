"""Sets of measurements.

Revision ID: 0002
Revises: 0001
"""
import sqlalchemy as sa
from alembic import op

revision = '0002'
down_revision = '0001'
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table('profile_sets',
    sa.Column('owner', sa.String(length=64), nullable=False),
    sa.Column('name', sa.String(length=253), nullable=False),
    sa.Column('digest', sa.String(length=64), nullable=False),
    sa.Column('summary', sa.LargeBinary(), nullable=False),
    sa.Column('body', sa.LargeBinary(), nullable=False),
    sa.Column('created_ms', sa.BigInteger(), nullable=False),
    sa.PrimaryKeyConstraint('owner', 'name', name=op.f('pk_profile_sets'))
    )


def downgrade() -> None:
    op.drop_table('profile_sets')
